"""Convolutions on codes: a Conv of two DequantizeLinear, as quantizers write it.

What it reads are floats that codes stand for: it rounds them again, which changes nothing. Operators such as
QLinearConv become such nodes before, see `redpebble.frontend.folding.open_codes`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.ops.elementwise import AddOp
from redpebble.dialect.ops.images import QuantizedConv2dOp
from redpebble.dialect.tensors import shape_of
from redpebble.frontend.operators.conversion import Conversion, NotCovered
from redpebble.frontend.operators.on_images.windows import image_of, matrix_of, window_of
from redpebble.frontend.operators.quantized import emit_layer
from redpebble.frontend.operators.quantized_operands import (
    KINDS,
    Codes,
    Integers,
    IntegerWeight,
    addend_of,
    array_of,
    codes_attribute,
    made_by,
    producer_of,
)


class _Kernel(NamedTuple):
    """A weight [O, C / groups, ...] less its zeros, and the scale of each output [O]."""

    values: Integers
    scale: NDArray[np.float32]


def convert_quantized_conv(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the convolution of two DequantizeLinear; nothing where it is no such one.

    Raises:
        NotCovered: it is one of a form that is not accepted.
    """
    x, w = conversion.input(0), conversion.input(1)
    if x is None or w is None or not (made_by(x, "DequantizeLinear") and made_by(w, "DequantizeLinear")):
        return ()
    image, node, weight_node = image_of(conversion), producer_of(x), producer_of(w)
    codes = _codes_of(conversion, node)
    kernel = _kernel_of(conversion, weight_node)
    name = weight_node.inputs[0]
    weight = _matrix(conversion, image, kernel, "" if name is None else name.name or "")
    found = Codes(image, codes, ())
    addend = addend_of(conversion, conversion.input(2), found, weight)
    multiplier = np.float32(codes.scale) * kernel.scale
    conversion.replaces((weight_node, *addend.nodes))
    layer = emit_layer(conversion, codes, weight, multiplier, addend.integers)
    window = window_of(conversion, image, kernel.values.shape[2:])
    result = conversion.emit(QuantizedConv2dOp(image, layer, window)).result
    if addend.floats is not None:
        spread = addend.floats.reshape(-1, *[1] * (len(shape_of(image)) - 2))
        result = conversion.emit(AddOp(result, conversion.emit_constant(spread.astype(np.float32), ""))).result
    return [result]


def _codes_of(conversion: Conversion, node: onnx_ir.Node) -> CodesAttr:
    """Return the codes that a DequantizeLinear makes floats of."""
    block = node.attributes.get("block_size")
    codes, scale, zero = [*node.inputs, None][:3]
    kind = "u8" if codes is None or codes.dtype is None else KINDS.get(codes.dtype.name.lower(), "")
    found = codes_attribute(conversion, scale, zero, kind) if kind and not (block and block.as_int()) else None
    if found is None:
        raise NotCovered("its input is not dequantized by one scale and zero of eight bits that are given")
    return found


def _kernel_of(conversion: Conversion, node: onnx_ir.Node) -> _Kernel:
    """Return a constant weight of a convolution that a DequantizeLinear makes floats of.

    Raises:
        NotCovered: it is no such weight.
    """
    operands, attributes = [*node.inputs, None][:3], node.attributes
    codes, scale, zero = (array_of(conversion, value) for value in operands)
    if codes is None or codes.ndim < 3 or codes.dtype.name not in KINDS:
        raise NotCovered("its weight is no constant of eight bits with channels and windows, accepted is one")
    if (operands[1] is not None and scale is None) or (operands[2] is not None and zero is None):
        raise NotCovered("the scale or zero of its weight is no constant")
    block, axis, outputs = attributes.get("block_size"), attributes.get("axis"), codes.shape[0]
    scales = np.ones(1, np.float32) if scale is None else scale.astype(np.float32).reshape(-1)
    zeros = np.zeros(1, np.int64) if zero is None else zero.astype(np.int64).reshape(-1)
    along = 1 if axis is None else axis.as_int() % codes.ndim
    spread = any(one.size > 1 for one in (scales, zeros))
    wrong = any(one.size not in (1, outputs) for one in (scales, zeros)) or (spread and along != 0)
    if (block is not None and block.as_int()) or wrong:
        raise NotCovered(f"the scale of its weight has {scales.size} values, accepted are 1 and {outputs}: the outputs")
    values = codes.astype(np.int64) - zeros.reshape(-1, *[1] * (codes.ndim - 1))
    return _Kernel(values, np.broadcast_to(scales, (outputs,)))


def _matrix(conversion: Conversion, image: SSAValue, kernel: _Kernel, name: str) -> IntegerWeight:
    """Return a weight as that of a layer, zeros between groups."""
    values, groups, channels = kernel.values, conversion.integer("group", 1), shape_of(image)[1]
    if values.ndim != len(shape_of(image)):
        raise NotCovered(f"a weight of rank {values.ndim}, accepted is {len(shape_of(image))}: that of the images")
    if groups < 1 or groups * values.shape[1] != channels or values.shape[0] % groups:
        raise NotCovered(f"{channels} channels in {groups} groups, accepted is what weight {values.shape} has")
    matrix = matrix_of(values.astype(np.float32), groups).astype(np.int64)
    return IntegerWeight(matrix, kernel.scale, f"{name} conv{groups}")
