"""Elementwise nodes: activations, and Add, Sub, Mul, Div, PRelu and Pow with numpy's broadcasting."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf, isnan
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import onnx_ir
from xdsl.ir import SSAValue

from ...dialect.attributes.activations import ACTIVATIONS, Activation, ActivationAttr
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, DivOp, MulOp, PreluOp, SubOp
from ...dialect.symbolic_sizes import Size, SymbolicShape
from ...dialect.tensors import is_f32_tensor
from ..folding.known_sizes import broadcast_sizes, shape_words
from .conversion import Conversion, Converter, NotCovered

ERF_SINCE: Final = 9
"""The opset since which the model can be written without operators of com.microsoft."""


def broadcast(conversion: Conversion, left: SSAValue, right: SSAValue, *, into_left: bool = False) -> SymbolicShape:
    """Return the sizes of two operands together; `into_left` asks that the right one fits the left one.

    Raises:
        NotCovered: names do not tell whether the operands fit.
    """
    sides = conversion.sizes(left), conversion.sizes(right)
    sizes = broadcast_sizes(*sides)
    if sizes is None or (into_left and sizes != sides[0]):
        texts = " and ".join(shape_words(side) for side in sides)
        raise NotCovered(f"expected sizes that are equal by number or name, or 1, got operands {texts}")
    return sizes


def _convert_binary(op_class: type[BinaryOp], conversion: Conversion) -> Sequence[SSAValue]:
    left = conversion.tensor(0)
    right = _divisor(conversion, left) if op_class is DivOp else conversion.tensor(1)
    broadcast(conversion, left, right, into_left=op_class is PreluOp)
    return [conversion.emit(op_class(left, right)).result]


def _divisor(conversion: Conversion, left: SSAValue) -> SSAValue:
    """Return what is divided by: as it was before it was expanded to the shape of the other operand."""
    value = conversion.input(1)
    node = None if value is None else value.producer()
    if node is None or (node.domain, node.op_type) != ("", "Expand") or None in node.inputs:
        return conversion.tensor(1)
    array, target = (conversion.scope.constant_of(operand) for operand in node.inputs if operand is not None)
    if array is None and node.inputs[0] is not None:
        return _of_rows(conversion, left, node, node.inputs[0])
    if array is None or target is None or array.dtype != np.float32:
        return conversion.tensor(1)
    shape, name = tuple(target.astype(np.int64).tolist()), node.inputs[0].name if node.inputs[0] is not None else ""
    conversion.replaces([node])
    if conversion.sizes(left) == tuple(map(Size.known, np.broadcast_shapes(array.shape, shape))):
        return conversion.emit_constant(array.astype(np.float32, copy=False), name or "")
    expanded = np.broadcast_to(array.astype(np.float32, copy=False), np.broadcast_shapes(array.shape, shape))
    return conversion.emit_constant(expanded, name or "", f"expanded to {shape}")


def _of_rows(conversion: Conversion, left: SSAValue, node: onnx_ir.Node, value: onnx_ir.Value) -> SSAValue:
    """Return one number a row before it was expanded to the shape of `left`, the degree of a node, say."""
    expanded = conversion.tensor(1)
    row = conversion.scope.value_of(value)
    if row is None or not is_f32_tensor(row.type):
        return expanded
    sizes, wanted = conversion.sizes(row), conversion.sizes(left)
    if conversion.sizes(expanded) != wanted or sizes != (*wanted[:-1], Size.known(1)):
        return expanded
    conversion.replaces([node])
    return row


def _activate(conversion: Conversion, x: SSAValue, kind: str, *parameters: float) -> SSAValue:
    return conversion.emit(ActivateOp(x, ActivationAttr(kind, parameters))).result


def _convert_plain(kind: str, conversion: Conversion) -> Sequence[SSAValue]:
    """A function without parameters."""
    return [_activate(conversion, conversion.tensor(0), kind)]


def _convert_with_numbers(kind: str, defaults: Mapping[str, float], conversion: Conversion) -> Sequence[SSAValue]:
    """A function whose parameters are float attributes with defaults (f32 in ONNX, so the default is rounded, too)."""
    parameters = [float(np.float32(conversion.number(name, default))) for name, default in defaults.items()]
    return [_activate(conversion, conversion.tensor(0), kind, *parameters)]


def _convert_gelu(conversion: Conversion) -> Sequence[SSAValue]:
    form = conversion.text("approximate", "none")
    if form not in ("none", "tanh"):
        raise NotCovered(f"expected approximate=none or tanh, got {form}")
    return [_activate(conversion, conversion.tensor(0), "gelu" if form == "none" else "gelu_tanh")]


def _convert_gelu_of_microsoft(conversion: Conversion) -> Sequence[SSAValue]:
    if conversion.scope.writes_opset < ERF_SINCE:
        raise NotCovered(f"expected opset {ERF_SINCE} for Erf, got an older one")
    return _convert_plain("gelu", conversion)


def _convert_fast_gelu(conversion: Conversion) -> Sequence[SSAValue]:
    x = conversion.tensor(0)
    if conversion.has_input(1):
        bias = conversion.tensor(1)
        broadcast(conversion, x, bias, into_left=True)
        x = conversion.emit(AddOp(x, bias)).result
    return [_activate(conversion, x, "gelu_tanh")]


def _convert_clip(conversion: Conversion) -> Sequence[SSAValue]:
    """The bounds are attributes before opset 11 and inputs since."""
    if conversion.opset < 11:
        low, high = conversion.number("min", -inf), conversion.number("max", inf)
    else:
        low, high = (_bound(conversion, index, default) for index, default in ((1, -inf), (2, inf)))
    return [_clip(conversion, conversion.tensor(0), low, high)]


def _clip(conversion: Conversion, x: SSAValue, low: float, high: float) -> SSAValue:
    if isnan(low) or isnan(high):
        raise NotCovered("expected numbers and infinities as bounds, got NaN")
    return _activate(conversion, x, "clip", low, high)


def _bound(conversion: Conversion, index: int, default: float) -> float:
    if not conversion.has_input(index):
        return default
    bound = conversion.constant(index)
    if bound is None or bound.size != 1:
        raise NotCovered(f"expected a constant scalar as input {('min', 'max')[index - 1]}, got another value")
    return float(bound.reshape(()))


def _convert_limit(kind: Literal["largest", "least"], conversion: Conversion) -> Sequence[SSAValue]:
    """The larger or the smaller one of a value and a number, as JAX writes a relu."""
    constants = [conversion.constant(index) for index in range(len(conversion.node.inputs))]
    numbers = [index for index, array in enumerate(constants) if array is not None and array.size == 1]
    if len(constants) != 2 or len(numbers) != 1:
        raise NotCovered("expected a tensor and a constant scalar, got two tensors, or one")
    x, bound = conversion.tensor(1 - numbers[0]), constants[numbers[0]]
    if bound is None or bound.ndim > len(conversion.sizes(x)):
        raise NotCovered("expected a scalar, got a constant of higher rank than the values")
    limit = float(bound.reshape(()))
    if kind == "largest" and limit == 0:
        return [_activate(conversion, x, "relu")]
    return [_clip(conversion, x, *((limit, inf) if kind == "largest" else (-inf, limit)))]


def _convert_pow(conversion: Conversion) -> Sequence[SSAValue]:
    exponent = conversion.any_constant(1)
    if exponent is None or exponent.size != 1:
        raise NotCovered("expected a constant exponent of -1, -0.5, 0.5, 1, 2 or 3, got another value")
    x = conversion.tensor(0)
    if exponent.ndim > len(conversion.sizes(x)):
        raise NotCovered(f"expected an exponent of at most the rank of the base, got rank {exponent.ndim}")
    match float(exponent.reshape(())):
        case -1.0:
            return [_activate(conversion, x, "reciprocal")]
        case -0.5:
            return [_activate(conversion, _activate(conversion, x, "sqrt"), "reciprocal")]
        case 0.5:
            return [_activate(conversion, x, "sqrt")]
        case 1.0:
            return [x]
        case 2.0:
            return [_activate(conversion, x, "square")]
        case 3.0:
            return [conversion.emit(MulOp(_activate(conversion, x, "square"), x)).result]
        case other:
            raise NotCovered(f"expected the exponent -1, -0.5, 0.5, 1, 2 or 3, got {other}")


def _converter_of(kind: str, known: Activation) -> Converter:
    """Return the converter of the operator that is an activation."""
    if known.onnx is None or not known.parameters:
        return partial(_convert_plain, kind)
    return partial(_convert_with_numbers, kind, dict(zip(known.parameters, known.onnx.defaults, strict=True)))


ELEMENTWISE_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {
        **{("", one.onnx.name): _converter_of(kind, one) for kind, one in ACTIVATIONS.items() if one.onnx is not None},
        ("", "Add"): partial(_convert_binary, AddOp),
        ("", "Clip"): _convert_clip,
        ("", "Div"): partial(_convert_binary, DivOp),
        ("", "Gelu"): _convert_gelu,
        ("", "Max"): partial(_convert_limit, "largest"),
        ("", "Min"): partial(_convert_limit, "least"),
        ("", "Mul"): partial(_convert_binary, MulOp),
        ("", "PRelu"): partial(_convert_binary, PreluOp),
        ("", "Pow"): _convert_pow,
        ("", "Sub"): partial(_convert_binary, SubOp),
        ("", "Swish"): partial(_convert_with_numbers, "silu", {"alpha": 1.0}),
        ("com.microsoft", "FastGelu"): _convert_fast_gelu,
        ("com.microsoft", "Gelu"): _convert_gelu_of_microsoft,
        ("com.microsoft", "QuickGelu"): partial(_convert_with_numbers, "silu", {"alpha": 1.702}),
    }
)
"""(domain, operator) -> converter."""
