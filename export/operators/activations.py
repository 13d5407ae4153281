"""Activations: one operator where the model's opset has it, older operators where it does not."""

from collections.abc import Callable, Mapping
from math import inf, pi, sqrt
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import onnx_ir as ir

from redpebble.dialect.attributes.activations import ACTIVATION_PARAMETERS
from redpebble.dialect.attributes.kernels import ActivationAttr
from redpebble.dialect.ops.elementwise import ActivateOp
from redpebble.export.writing.node_builder import Draft

CLIP_WITH_INPUTS = 11
GELU = 20


class Operator(NamedTuple):
    """An operator that is the whole activation, from the opset `since`, with the defaults of its parameters."""

    name: str
    since: int = 1
    defaults: tuple[float, ...] = ()


OPERATORS: Final[Mapping[str, Operator]] = MappingProxyType(
    {
        "abs": Operator("Abs"),
        "celu": Operator("Celu", 12, (1.0,)),
        "elu": Operator("Elu", 1, (1.0,)),
        "erf": Operator("Erf", 9),
        "exp": Operator("Exp"),
        "gelu": Operator("Gelu", GELU),
        "hard_sigmoid": Operator("HardSigmoid", 1, (0.2, 0.5)),
        "hard_swish": Operator("HardSwish", 14),
        "leaky_relu": Operator("LeakyRelu", 1, (0.01,)),
        "log": Operator("Log"),
        "mish": Operator("Mish", 18),
        "neg": Operator("Neg"),
        "reciprocal": Operator("Reciprocal"),
        "relu": Operator("Relu"),
        "selu": Operator("Selu", 1, (1.67326319217681884765625, 1.05070102214813232421875)),
        "sigmoid": Operator("Sigmoid"),
        "softplus": Operator("Softplus"),
        "sqrt": Operator("Sqrt"),
        "tanh": Operator("Tanh"),
    }
)


def emit_activate(op: ActivateOp, draft: Draft) -> tuple[ir.Value]:
    """The activation's own nodes."""
    return (emit_activation(op.activation, draft.operand(op.x), draft),)


def emit_activation(activation: ActivationAttr, x: ir.Value, draft: Draft) -> ir.Value:
    """Return the ONNX value of `activation` applied to `x`.

    Raises:
        ValueError: the model's opset has neither the operator nor the means to build it.
    """
    kind = activation.kind.data
    operator = OPERATORS.get(kind)
    if operator is not None and draft.opset >= operator.since:
        return draft.node(operator.name, x, **_attributes(kind, activation.values, operator.defaults))
    if kind not in DECOMPOSED:
        raise ValueError(
            f"activation {kind} needs opset {operator.since if operator else 1}, the model's is {draft.opset}"
        )
    return DECOMPOSED[kind](x, activation.values, draft)


def _attributes(kind: str, values: tuple[float, ...], defaults: tuple[float, ...]) -> dict[str, float]:
    """Return the parameters by name, without those that are the operator's defaults (in single precision)."""
    named = zip(ACTIVATION_PARAMETERS[kind], values, defaults, strict=True)
    return {name: value for name, value, default in named if np.float32(value) != np.float32(default)}


def _clip(x: ir.Value, bounds: tuple[float, ...], draft: Draft) -> ir.Value:
    """Clip with the bounds that there are: attributes once, inputs since opset 11."""
    low, high = bounds
    if draft.opset < CLIP_WITH_INPUTS:
        # min > max gives max, as later; onnxruntime refuses such attributes.
        given = {"min": min(low, high)} if low != -inf else {}
        return draft.node("Clip", x, **given, **({"max": high} if high != inf else {}))
    inputs = [None if low == -inf else draft.scalar(low), None if high == inf else draft.scalar(high)]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return draft.node("Clip", x, *inputs)


def _celu(x: ir.Value, parameters: tuple[float, ...], draft: Draft) -> ir.Value:
    """relu(x) - relu(-alpha (exp(x / alpha) - 1)), right for either sign of alpha."""
    alpha = draft.scalar(parameters[0])
    exponential = draft.node("Exp", draft.node("Div", x, alpha))
    falling = draft.node("Mul", draft.node("Sub", draft.scalar(1.0), exponential), alpha)
    return draft.node("Sub", draft.node("Relu", x), draft.node("Relu", falling))


def _gelu(x: ir.Value, _: tuple[float, ...], draft: Draft) -> ir.Value:
    """x (1 + erf(x / sqrt 2)) / 2, in the order of nodes that runtimes know and fuse."""
    if draft.opset < OPERATORS["erf"].since:
        raise ValueError(f"activation gelu needs opset {OPERATORS['erf'].since}, the model's is {draft.opset}")
    error = draft.node("Erf", draft.node("Div", x, draft.scalar(sqrt(2.0))))
    product = draft.node("Mul", x, draft.node("Add", error, draft.scalar(1.0)))
    return draft.node("Mul", product, draft.scalar(0.5))


def _gelu_tanh(x: ir.Value, _: tuple[float, ...], draft: Draft) -> ir.Value:
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    if draft.opset >= GELU:
        return draft.node("Gelu", x, approximate="tanh")
    cube = draft.node("Mul", draft.node("Pow", x, draft.scalar(3.0)), draft.scalar(0.044715))
    inner = draft.node("Mul", draft.node("Add", x, cube), draft.scalar(sqrt(2.0 / pi)))
    grown = draft.node("Add", draft.node("Tanh", inner), draft.scalar(1.0))
    return draft.node("Mul", draft.node("Mul", x, draft.scalar(0.5)), grown)


def _hard_swish(x: ir.Value, _: tuple[float, ...], draft: Draft) -> ir.Value:
    """x * hard_sigmoid(x) with slope 1/6."""
    return draft.node("Mul", x, draft.node("HardSigmoid", x, alpha=1.0 / 6.0, beta=0.5))


def _mish(x: ir.Value, _: tuple[float, ...], draft: Draft) -> ir.Value:
    """x * tanh(softplus(x))."""
    return draft.node("Mul", x, draft.node("Tanh", draft.node("Softplus", x)))


def _silu(x: ir.Value, parameters: tuple[float, ...], draft: Draft) -> ir.Value:
    """x * sigmoid(alpha x): opset 24 has Swish for it, which onnxruntime 1.31 does not run."""
    (alpha,) = parameters
    scaled = x if alpha == 1.0 else draft.node("Mul", x, draft.scalar(alpha))
    return draft.node("Mul", x, draft.node("Sigmoid", scaled))


def _square(x: ir.Value, _: tuple[float, ...], draft: Draft) -> ir.Value:
    """x * x."""
    return draft.node("Mul", x, x)


DECOMPOSED: Final[Mapping[str, Callable[[ir.Value, tuple[float, ...], Draft], ir.Value]]] = MappingProxyType(
    {
        "celu": _celu,
        "clip": _clip,
        "gelu": _gelu,
        "gelu_tanh": _gelu_tanh,
        "hard_swish": _hard_swish,
        "mish": _mish,
        "silu": _silu,
        "square": _square,
    }
)
"""Kind of activation -> how it is built from other operators (or from one whose form changed)."""
