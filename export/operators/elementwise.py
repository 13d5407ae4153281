"""Operators of two operands, broadcast against each other, and activations."""

from collections.abc import Callable, Mapping
from functools import partial
from math import inf, pi, sqrt
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx_ir as ir
from xdsl.ir import Operation

from ...dialect.attributes.activations import (
    ACTIVATIONS,
    BFLOAT_SINCE,
    GELU_SINCE,
    SCALED,
    ActivationAttr,
)
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, DivOp, MulOp, PreluOp, SubOp
from ..writing.node_builder import Emitter, NodeBuilder

BINARY_OPERATORS: Final = MappingProxyType[type[BinaryOp], str](
    {AddOp: "Add", DivOp: "Div", MulOp: "Mul", PreluOp: "PRelu", SubOp: "Sub"}
)


def emit_binary(op: BinaryOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """The operator of the same name."""
    return (builder.node(BINARY_OPERATORS[type(op)], builder.operand(op.left), builder.operand(op.right)),)


CLIP_WITH_INPUTS = 11


def emit_activate(op: ActivateOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """The activation's own nodes."""
    return (emit_activation(op.activation, builder.operand(op.x), builder),)


def emit_activation(activation: ActivationAttr, x: ir.Value, builder: NodeBuilder) -> ir.Value:
    """Return the ONNX value of `activation` applied to `x`.

    Raises:
        ValueError: the model's opset has neither the operator nor the means to build it.
    """
    kind = activation.kind
    operator = ACTIVATIONS[kind].onnx
    if operator is not None and builder.opset >= operator.since:
        return builder.node(operator.name, x, **_attributes(kind, activation.values, operator.defaults))
    if kind not in DECOMPOSED:
        raise ValueError(
            f"activation {kind} needs opset {operator.since if operator else 1}, the model's is {builder.opset}"
        )
    return DECOMPOSED[kind](x, activation.values, builder)


def _attributes(kind: str, values: tuple[float, ...], defaults: tuple[float, ...]) -> dict[str, float]:
    """Return the parameters by name, without those that are the operator's defaults (in single precision)."""
    named = zip(ACTIVATIONS[kind].parameters, values, defaults, strict=True)
    return {name: value for name, value, default in named if np.float32(value) != np.float32(default)}


def _bfloat16(x: ir.Value, _: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    """Two casts, there and back."""
    if builder.opset < BFLOAT_SINCE:
        raise ValueError(f"activation bfloat16 needs opset {BFLOAT_SINCE}, the model's is {builder.opset}")
    rounded = builder.node("Cast", x, to=int(ir.DataType.BFLOAT16))
    return builder.node("Cast", rounded, to=int(ir.DataType.FLOAT))


def _clip(x: ir.Value, bounds: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    """Clip with the bounds that there are: attributes once, inputs since opset 11."""
    low, high = bounds
    if builder.opset < CLIP_WITH_INPUTS:
        # min > max gives max, as later; onnxruntime refuses such attributes.
        given = {"min": min(low, high)} if low != -inf else {}
        return builder.node("Clip", x, **given, **({"max": high} if high != inf else {}))
    inputs = [None if low == -inf else builder.scalar(low), None if high == inf else builder.scalar(high)]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return builder.node("Clip", x, *inputs)


def _celu(x: ir.Value, parameters: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    """relu(x) - relu(-alpha (exp(x / alpha) - 1)), right for either sign of alpha."""
    alpha = builder.scalar(parameters[0])
    exponential = builder.node("Exp", builder.node("Div", x, alpha))
    falling = builder.node("Mul", builder.node("Sub", builder.scalar(1.0), exponential), alpha)
    return builder.node("Sub", builder.node("Relu", x), builder.node("Relu", falling))


def _gelu(x: ir.Value, _: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    """x (1 + erf(x / sqrt 2)) / 2, in the order of nodes that runtimes know and fuse."""
    operator = ACTIVATIONS["erf"].onnx
    assert operator is not None
    if builder.opset < operator.since:
        raise ValueError(f"activation gelu needs opset {operator.since}, the model's is {builder.opset}")
    error = builder.node("Erf", builder.node("Div", x, builder.scalar(sqrt(2.0))))
    product = builder.node("Mul", x, builder.node("Add", error, builder.scalar(1.0)))
    return builder.node("Mul", product, builder.scalar(0.5))


def _gelu_tanh(x: ir.Value, _: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    if builder.opset >= GELU_SINCE:
        return builder.node("Gelu", x, approximate="tanh")
    cube = builder.node("Mul", builder.node("Pow", x, builder.scalar(3.0)), builder.scalar(0.044715))
    inner = builder.node("Mul", builder.node("Add", x, cube), builder.scalar(sqrt(2.0 / pi)))
    grown = builder.node("Add", builder.node("Tanh", inner), builder.scalar(1.0))
    return builder.node("Mul", builder.node("Mul", x, builder.scalar(0.5)), grown)


def _hard_swish(x: ir.Value, _: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    """x * hard_sigmoid(x) with slope 1/6."""
    return builder.node("Mul", x, builder.node("HardSigmoid", x, alpha=1.0 / 6.0, beta=0.5))


def _mish(x: ir.Value, _: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    """x * tanh(softplus(x))."""
    return builder.node("Mul", x, builder.node("Tanh", builder.node("Softplus", x)))


def _quantize(x: ir.Value, parameters: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    scale, zero = builder.scalar(parameters[0]), builder.initializers.literal(np.array(parameters[1], np.uint8))
    return builder.node("DequantizeLinear", builder.node("QuantizeLinear", x, scale, zero), scale, zero)


def _scaled(kind: str, x: ir.Value, parameters: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    """scale * y + shift of what the activation of a kind yields."""
    scale, shift = map(builder.scalar, parameters)
    return builder.node("Add", builder.node("Mul", emit_activation(ActivationAttr(kind), x, builder), scale), shift)


def _silu(x: ir.Value, parameters: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    """x * sigmoid(alpha x): opset 24 has Swish for it, which onnxruntime 1.31 does not run."""
    (alpha,) = parameters
    scaled = x if alpha == 1.0 else builder.node("Mul", x, builder.scalar(alpha))
    return builder.node("Mul", x, builder.node("Sigmoid", scaled))


def _square(x: ir.Value, _: tuple[float, ...], builder: NodeBuilder) -> ir.Value:
    return builder.node("Mul", x, x)


DECOMPOSED: Final[Mapping[str, Callable[[ir.Value, tuple[float, ...], NodeBuilder], ir.Value]]] = MappingProxyType(
    {
        "bfloat16": _bfloat16,
        "celu": _celu,
        "clip": _clip,
        "gelu": _gelu,
        "gelu_tanh": _gelu_tanh,
        "hard_swish": _hard_swish,
        "mish": _mish,
        "quantize": _quantize,
        **{scaled: partial(_scaled, kind) for kind, scaled in SCALED.items()},
        "silu": _silu,
        "square": _square,
    }
)
"""Kind of activation -> how it is built from other operators (or from one whose form changed)."""


ELEMENTWISE_EMITTERS: Final[Mapping[type[Operation], Emitter]] = MappingProxyType(
    {
        ActivateOp: emit_activate,
        AddOp: emit_binary,
        SubOp: emit_binary,
        MulOp: emit_binary,
        DivOp: emit_binary,
        PreluOp: emit_binary,
    }
)
