"""Convolutions on codes: a Conv of two DequantizeLinear, or ConvInteger with Add, Cast and Mul behind it.

Codes are integers of eight bits that stand for values: value = scale * (code - zero). What a convolution reads are
floats of codes: they become codes again, which changes nothing. Operators such as
QLinearConv become such nodes before, see `redpebble.frontend.folding.open_codes`.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.attributes.codes import CodesAttr
from ....dialect.attributes.window import WindowAttr
from ....dialect.ops.elementwise import AddOp, ConvertOp
from ....dialect.ops.images import Conv2dOp
from ....dialect.ops.quantized_layers import QuantizedLayer
from ....dialect.tensors import shape_of
from ....sparse.csr import CscMatrix
from ...folding.integer_weights import PLACES
from ..conversion import Conversion, NotCovered
from ..quantized import check_scales, codes_of, emit_layer, has_zero
from ..quantized_operands import (
    KINDS,
    Codes,
    Integers,
    IntegerWeight,
    addend_of,
    array_of,
    codes_attribute,
    made_by,
    producer_of,
    scaled_sums,
    sparse_weight_of,
)
from .windows import checked_image, image_of, matrix_of, window_of


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
    weight, taps = _weight_of(conversion, image, weight_node)
    addend = addend_of(conversion, conversion.input(2), Codes(image, codes, ()), weight)
    conversion.replaces((weight_node, *weight.nodes, *addend.nodes))
    layer = emit_layer(conversion, codes, weight, np.float32(codes.scale) * weight.scale, addend.integers)
    window = window_of(conversion, image, taps)
    result = _emit(conversion, image, layer, window)
    if addend.floats is not None:
        spread = addend.floats.reshape(-1, *[1] * (len(shape_of(image)) - 2))
        result = conversion.emit(AddOp(result, conversion.emit_constant(spread.astype(np.float32), ""))).result
    return [result]


def convert_scaled_conv(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the convolution of the Mul behind ConvInteger, Add and Cast; nothing for another Mul.

    The sums may be those of two ConvInteger of the same codes: weights that are too far apart for one zero.

    Raises:
        NotCovered: it is of a form that is not accepted.
    """
    found = scaled_sums(conversion)
    products = [] if found is None else _products(found.sums)
    if found is None or not products:
        return ()
    first = Conversion(products[0], conversion.opset, conversion.scope)
    x = first.input(0)
    codes = None if x is None else codes_of(conversion, x)
    if codes is None or any(
        one.inputs[0] is not x or not has_zero(conversion, codes, [*one.inputs, None, None][2]) for one in products
    ):
        raise NotCovered("expected one constant scale and zero of the input of ConvInteger, got others")
    check_scales(found, codes)
    image, weights = checked_image(codes.floats), list[IntegerWeight]()
    taps: tuple[int, ...] = ()
    for product in products:
        weight, taps = _weight_of(first, image, product)
        weights.append(weight)
    total = weights[0]
    if len(weights) > 1:
        dense = sum((one.matrix.to_dense() for one in weights), np.zeros((), np.float32))
        total = total._replace(matrix=CscMatrix.from_dense(dense), name=" ".join(one.name for one in weights))
    multiplier, bias = (
        None if array is None else _by_channel(array, total.scale.size, len(shape_of(image)))
        for array in (found.scale, found.bias)
    )
    assert multiplier is not None
    made = (node for weight in weights for node in weight.nodes)
    conversion.replaces((*codes.nodes, *found.nodes, *made, *products))
    integers = None if bias is None else bias.astype(np.int64)
    layer = emit_layer(conversion, codes.codes, total, multiplier.astype(np.float32), integers)
    window = window_of(first, image, taps)
    return [_emit(conversion, image, layer, window)]


def _emit(conversion: Conversion, image: SSAValue, layer: QuantizedLayer, window: WindowAttr) -> SSAValue:
    """Return the floats of a convolution."""
    codes = layer.codes
    x = image if codes.is_dynamic else conversion.emit(ConvertOp(image, codes)).result
    return conversion.emit(Conv2dOp.of_codes(x, layer, window)).result


def _weight_of(conversion: Conversion, image: SSAValue, reader: onnx_ir.Node) -> tuple[IntegerWeight, tuple[int, ...]]:
    """Return the weight of a ConvInteger, or of DequantizeLinear, as that of a layer, and the sizes of its window."""
    w, zero = ([*reader.inputs, None, None][place] for place in PLACES[reader.op_type])
    found = sparse_weight_of(conversion, reader)
    if found is None:
        scale = reader.inputs[1] if reader.op_type == "DequantizeLinear" else None
        kernel = _kernel_of(conversion, [w, scale, zero], reader)
        return _matrix(conversion, image, kernel, "" if w is None else w.name or ""), kernel.values.shape[2:]
    weight, taps = found
    if len(taps) != len(shape_of(image)) - 2 or weight.matrix.shape[0] != shape_of(image)[1] * prod(taps):
        raise NotCovered(f"expected the window of weight {list(weight.matrix.shape)}, got {list(taps)}")
    return weight._replace(name=f"{weight.name} conv1"), taps


def _products(sums: onnx_ir.Value) -> list[onnx_ir.Node]:
    """Return the ConvInteger, one or two, that sums are of."""
    node = sums.producer()
    if node is None or node.op_type not in ("Add", "ConvInteger"):
        return []
    nodes = (
        [node] if node.op_type == "ConvInteger" else [None if one is None else one.producer() for one in node.inputs]
    )
    found = [one for one in nodes if one is not None and one.op_type == "ConvInteger"]
    same = all(one.attributes == found[0].attributes for one in found[1:])
    return found if len(found) == len(nodes) and same else []


def _by_channel(array: NDArray[np.generic], outputs: int, rank: int) -> NDArray[np.generic]:
    """Return a number for each output of an array that is spread over the pixels of images of a rank.

    Raises:
        NotCovered: it is spread in another way.
    """
    shape = (1,) * (rank - array.ndim) + array.shape
    if array.size != 1 and shape != (1, outputs) + (1,) * (rank - 2):
        raise NotCovered(f"expected one number, or one for each of {outputs} channels, got shape {list(array.shape)}")
    return np.broadcast_to(array.reshape(-1), (outputs,))


def _codes_of(conversion: Conversion, node: onnx_ir.Node) -> CodesAttr:
    """Return the codes by its codes, scale and zero; the node says what their axis is."""
    block = node.attributes.get("block_size")
    codes, scale, zero = [*node.inputs, None][:3]
    kind = "u8" if codes is None or codes.dtype is None else KINDS.get(codes.dtype.name.lower(), "")
    found = codes_attribute(conversion, scale, zero, kind) if kind and not (block and block.as_int()) else None
    if found is None:
        raise NotCovered(
            "expected one constant scale and zero of eight bits that its input is dequantized by, got others"
        )
    return found


def _kernel_of(conversion: Conversion, operands: Sequence[onnx_ir.Value | None], node: onnx_ir.Node) -> _Kernel:
    """Return a constant weight of a convolution by its codes, scale and zero; the node says what their axis is.

    Raises:
        NotCovered: it is no such weight.
    """
    attributes, by_outputs = node.attributes, 0 if node.op_type == "ConvInteger" else 1
    codes, scale, zero = (array_of(conversion, value) for value in operands)
    if codes is None or codes.ndim < 3 or codes.dtype.name not in KINDS:
        raise NotCovered("expected a constant weight of eight bits with channels and windows, got another value")
    if (operands[1] is not None and scale is None) or (operands[2] is not None and zero is None):
        raise NotCovered("expected a constant scale and zero of its weight, got computed ones")
    block, axis, outputs = attributes.get("block_size"), attributes.get("axis"), codes.shape[0]
    scales = np.ones(1, np.float32) if scale is None else scale.astype(np.float32).reshape(-1)
    zeros = np.zeros(1, np.int64) if zero is None else zero.astype(np.int64).reshape(-1)
    along = by_outputs if axis is None else axis.as_int() % codes.ndim
    spread = any(one.size > 1 for one in (scales, zeros))
    wrong = any(one.size not in (1, outputs) for one in (scales, zeros)) or (spread and along != 0)
    if (block is not None and block.as_int()) or wrong:
        raise NotCovered(f"expected a scale of 1 or {outputs} values for the outputs of the weight, got {scales.size}")
    values = codes.astype(np.int64) - zeros.reshape(-1, *[1] * (codes.ndim - 1))
    return _Kernel(values, np.broadcast_to(scales, (outputs,)))


def _matrix(conversion: Conversion, image: SSAValue, kernel: _Kernel, name: str) -> IntegerWeight:
    """Return a weight as that of a layer, zeros between groups."""
    values, groups, channels = kernel.values, conversion.integer("group", 1), shape_of(image)[1]
    if values.ndim != len(shape_of(image)):
        raise NotCovered(f"expected a weight of rank {len(shape_of(image))}, that of the images, got {values.ndim}")
    if groups < 1 or groups * values.shape[1] != channels or values.shape[0] % groups:
        raise NotCovered(f"expected the channels of weight {values.shape}, got {channels} in {groups} groups")
    matrix = CscMatrix.from_dense(matrix_of(values.astype(np.float32), groups))
    return IntegerWeight(matrix, kernel.scale, f"{name} conv{groups}")
