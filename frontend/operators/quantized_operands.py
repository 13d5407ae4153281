"""Operands of quantized layers: codes, weights of eight bits, and what is added, as nodes and constants give them."""

from functools import partial
from math import inf
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialect.attributes.codes import LEAST_SCALE, CodesAttr
from ...sparse.csr import CscMatrix
from ..folding.integer_weights import integer_weight_nodes
from .conversion import Conversion, NotCovered
from .patterns import CONSTANT, Hole, Match, That, op

KINDS: Final = {"uint8": "u8", "int8": "s8"}

CLOSE: Final = 1e-5
"""Relative difference up to which the scale of a bias is that of the sums it is added to."""

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]


class Codes(NamedTuple):
    """A value that is known by codes: the floats that are rounded to them, and the nodes that do it."""

    floats: SSAValue
    codes: CodesAttr
    nodes: tuple[onnx_ir.Node, ...]


class IntegerWeight(NamedTuple):
    """A weight [K, N] less its zeros, the scale of each output [N], its name, and the nodes that make floats of it."""

    matrix: CscMatrix
    scale: Floats
    name: str
    nodes: tuple[onnx_ir.Node, ...] = ()


class Addend(NamedTuple):
    """Addend of sums [N] as integers, or to results as floats."""

    integers: Integers | None = None
    floats: Floats | None = None
    nodes: tuple[onnx_ir.Node, ...] = ()


def output_kind(node: onnx_ir.Node) -> str:
    """Return the kind of codes that a QuantizeLinear without a zero yields."""
    attribute = node.attributes.get("output_dtype")
    return "s8" if attribute is not None and attribute.as_int() == onnx_ir.DataType.INT8 else "u8"


def codes_attribute(
    conversion: Conversion, scale: onnx_ir.Value | None, zero: onnx_ir.Value | None, kind: str
) -> CodesAttr | None:
    """Return codes by their scale and zero, of `kind` where they have no zero; None where these are not given.

    So it is where the scale is infinite, as a quantizer writes it for a mask of -inf.
    """
    size, offset = number_of(conversion, scale), None if zero is None else array_of(conversion, zero)
    if size is None or not LEAST_SCALE <= size < inf or (zero is not None and (offset is None or offset.size != 1)):
        return None
    if offset is None:
        return CodesAttr(kind, size, 0)
    if offset.dtype.name not in KINDS:
        return None
    return CodesAttr(KINDS[offset.dtype.name], size, int(offset.reshape(-1)[0]))


def fault_of_codes(conversion: Conversion, dequantize: onnx_ir.Node) -> str:
    """Return what is not accepted of codes that a DequantizeLinear reads, where none are known."""
    scale, zero = [*dequantize.inputs, None][1:3]
    sizes, offset = array_of(conversion, scale), array_of(conversion, zero)
    if offset is not None and offset.dtype.name not in KINDS:
        return f"expected an input of {' or '.join(KINDS)}, got {offset.dtype.name}"
    if sizes is not None and sizes.size > 1:
        return f"expected one scale of its input, got {sizes.size}"
    return "expected one constant scale and zero of its input, got others"


def stated_codes(conversion: Conversion) -> CodesAttr | None:
    """Return the codes that a node makes of floats, or floats of, by a scale and a zero that are constants; or None."""
    node = conversion.node
    if node.domain or node.op_type not in ("DequantizeLinear", "QuantizeLinear") or len(node.inputs) < 3:
        return None
    scale, zero = node.inputs[1], node.inputs[2]
    try:
        return None if zero is None else codes_attribute(conversion, scale, zero, "u8")
    except VerifyException:
        return None  # onnxruntime may take such a scale


def dequantized_weight(conversion: Conversion, value: onnx_ir.Value, *, transposed: bool) -> IntegerWeight | None:
    """Return the weight that a DequantizeLinear of a constant yields; None for anything but a matrix.

    Raises:
        NotCovered: it is of a form that is not accepted.
    """
    node = producer_of(value)
    block = node.attributes.get("block_size")
    if block is not None and block.as_int():
        raise NotCovered("expected a scale of its weight, or one an output, got one a block")
    sparse = None if transposed else sparse_weight_of(conversion, node)
    if sparse is not None:
        return None if sparse[1] else sparse[0]
    operands = [*node.inputs, None][:3]
    if operands[0] is None or array_of(conversion, operands[0]) is None:
        return None
    stated = node.attributes.get("axis")
    weight = weight_of(conversion, (operands[0], operands[1], operands[2]), axis=0 if transposed else 1, stated=stated)
    return weight._replace(nodes=(node,))


def weight_of(
    conversion: Conversion,
    operands: tuple[onnx_ir.Value, onnx_ir.Value | None, onnx_ir.Value | None],
    *,
    axis: int,
    stated: onnx_ir.Attr | None = None,
) -> IntegerWeight:
    """Return a constant weight whose outputs lie along an axis, by its codes, scale and zero.

    Raises:
        NotCovered: it is no such weight.
    """
    codes, scale, zero = (None if value is None else array_of(conversion, value) for value in operands)
    if codes is None or codes.ndim != 2 or codes.dtype.name not in KINDS:
        raise NotCovered("expected a constant matrix of eight bits as weight, got another value")
    if (operands[1] is not None and scale is None) or (operands[2] is not None and zero is None):
        raise NotCovered("expected a constant scale and zero of its weight, got computed ones")
    outputs = codes.shape[axis]
    scales = np.ones(1, np.float32) if scale is None else scale.astype(np.float32).reshape(-1)
    zeros = np.zeros(1, np.int64) if zero is None else zero.astype(np.int64).reshape(-1)
    along = 1 if stated is None else stated.as_int() % 2
    if any(one.size not in (1, outputs) for one in (scales, zeros)) or (stated and scales.size > 1 and along != axis):
        raise NotCovered(f"expected a scale of its weight of 1 or {outputs} values, got {scales.size}")
    values = (codes if axis == 1 else codes.T).astype(np.int64) - zeros
    matrix = CscMatrix.from_dense(values.astype(np.float32))
    return IntegerWeight(matrix, np.broadcast_to(scales, (outputs,)), operands[0].name or "")


def sparse_weight_of(conversion: Conversion, reader: onnx_ir.Node) -> tuple[IntegerWeight, tuple[int, ...]] | None:
    """Return the weight that was put together from few entries for a product of integers, or for DequantizeLinear.

    Beside it stand the sizes of its window.

    Raises:
        NotCovered: its entries are no integers of eight bits, or it has another number of scales than outputs.
    """
    found = integer_weight_nodes(reader, conversion.scope.ir_version)
    tensor = None if found is None else conversion.scope.sparse_matrix_of(found.source)
    if found is None or tensor is None:
        return None
    matrix, (least, greatest) = tensor.weight(transposed=False), found.bounds
    outputs = matrix.shape[1]
    if found.zero.size not in (1, outputs):
        raise NotCovered(f"expected a zero of its weight of 1 or {outputs} values, got {found.zero.size}")
    zeros = np.broadcast_to(found.zero, (outputs,))[matrix.columns]
    codes = np.trunc(matrix.values + zeros)
    if not np.all((codes >= least) & (codes <= greatest)):
        raise NotCovered(
            f"expected entries of its weight between {least} and {greatest}, those of its bytes, got others"
        )
    matrix = matrix._replace(values=(codes - zeros).astype(np.float32))
    scales, nodes = np.ones(1, np.float32), found.nodes
    if reader.op_type == "DequantizeLinear":
        scales, nodes = _scales_of(conversion, reader, outputs, 0 if found.kernel_size else 1), (*nodes, reader)
    weight = IntegerWeight(matrix, np.broadcast_to(scales, (outputs,)), found.source.name or "", nodes)
    return weight, found.kernel_size


def _scales_of(conversion: Conversion, node: onnx_ir.Node, outputs: int, axis: int) -> Floats:
    """Return the scale, or one an output, by which a DequantizeLinear makes floats of a weight."""
    scale, stated = array_of(conversion, node.inputs[1]), node.attributes.get("axis")
    along = 1 if stated is None else stated.as_int()
    if scale is None or scale.size not in (1, outputs) or (scale.size > 1 and along != axis):
        count = 0 if scale is None else scale.size
        raise NotCovered(f"expected a scale of its weight of 1 or {outputs} values, got {count}")
    return scale.astype(np.float32).reshape(-1)


def addend_of(conversion: Conversion, value: onnx_ir.Value | None, codes: Codes, weight: IntegerWeight) -> Addend:
    """Return what Gemm adds: a constant, or one of integers dequantized.

    Raises:
        NotCovered: it is of a form that is not accepted.
    """
    if value is None:
        return Addend()
    floats = array_of(conversion, value)
    outputs = weight.scale.size
    if floats is not None and floats.dtype == np.float32 and floats.size in (1, outputs):
        return Addend(floats=np.broadcast_to(floats.astype(np.float32).reshape(-1), (outputs,)))
    if not made_by(value, "DequantizeLinear"):
        raise NotCovered("expected a constant bias, got a computed one")
    node = producer_of(value)
    integers, scale = (None if one is None else array_of(conversion, one) for one in node.inputs[:2])
    if integers is None or scale is None or integers.size != outputs or integers.dtype != np.int32:
        raise NotCovered("expected a constant bias of integers, got another value")
    if not np.allclose(scale.reshape(-1), codes.codes.scale * weight.scale, rtol=CLOSE, atol=0):
        return Addend(floats=integers.astype(np.float32).reshape(-1) * scale.astype(np.float32), nodes=(node,))
    return Addend(integers=integers.reshape(-1).astype(np.int64), nodes=(node,))


_INPUT_SCALE: Final = That("a scale that a call finds", lambda _, value: made_by(value, "DynamicQuantizeLinear"))
_FACTORS: Final = Hole("scale", CONSTANT) | op.Mul(Hole("input scale", _INPUT_SCALE), Hole("scale", CONSTANT))
SCALED_SUMS: Final = op.Mul(op.Cast(op.Add(Hole("sums"), Hole("bias", CONSTANT)) | Hole("sums")), _FACTORS)


class ScaledSums(NamedTuple):
    """Sums of integers, what is added to them, and what they are multiplied by behind a Cast.

    `input_scale` is the scale of a tensor that a call finds, which multiplies `scale`, or None.
    """

    sums: onnx_ir.Value
    bias: Integers | None
    scale: Floats
    input_scale: onnx_ir.Value | None
    nodes: tuple[onnx_ir.Node, ...]


def scaled_sums(conversion: Conversion) -> ScaledSums | None:
    """Return what a Mul behind Cast, and an Add of integers before that, multiplies; None for another Mul."""
    match = Match(conversion)
    if match.fault_of(partial(match.root, SCALED_SUMS)) is not None:
        return None
    array, factor = (
        array_of(conversion, match.value(name)) if name in match.holes else None for name in ("bias", "scale")
    )
    input_scale = match.value("input scale") if "input scale" in match.holes else None
    assert factor is not None
    integers = None if array is None else array.astype(np.int64)
    return ScaledSums(match.value("sums"), integers, factor.astype(np.float32), input_scale, tuple(match.nodes))


def made_by(value: onnx_ir.Value, operator: str) -> bool:
    """Return whether a node of an operator yields a value."""
    node = value.producer()
    if node is None or node.op_type != operator or node.domain not in ("", "com.microsoft"):
        return False
    return operator != "DequantizeLinear" or yields_floats(node.attributes.get("output_dtype"))


def yields_floats(output_dtype: onnx_ir.Attr | None) -> bool:
    """Return whether a DequantizeLinear yields what its scale is, by its attribute: floats of 32 bits."""
    return output_dtype is None or output_dtype.as_int() in (onnx_ir.DataType.UNDEFINED, onnx_ir.DataType.FLOAT)


def producer_of(value: onnx_ir.Value) -> onnx_ir.Node:
    """Return the node that yields a value: one does."""
    node = value.producer()
    assert node is not None
    return node


def array_of(conversion: Conversion, value: onnx_ir.Value | None) -> NDArray[np.generic] | None:
    """Return the array of a constant, else None."""
    return None if value is None else conversion.scope.constant_of(value)


def number_of(conversion: Conversion, value: onnx_ir.Value | None) -> float | None:
    """Return the only entry of a constant, else None."""
    array = array_of(conversion, value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None
