"""Constants that are dequantized: which of them become floats though a runtime could compute with their codes.

Vectors do that no layer multiplies by or adds: scales of a norm, what is added to values. Weights do whose layers read
floats, if most of them are zeros: a runtime would dequantize all of them at every call.
"""

from typing import Final

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ...sparse.densities import MOSTLY_ZEROS
from .known_constants import constant_array

MULTIPLYING: Final = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def stays_quantized(node: onnx_ir.Node) -> bool:
    """Return whether a runtime computes with the codes of a constant that a DequantizeLinear makes floats of."""
    readers = [use.node for output in node.outputs for use in output.uses()]
    if not any(reader.op_type in MULTIPLYING for reader in readers):
        return _rank(node) > 1
    weights_only = all(_reads_floats(reader, node) for reader in readers)
    return not (weights_only and _density(node) < MOSTLY_ZEROS)


def is_dequantized(value: onnx_ir.Value) -> bool:
    """Return whether a DequantizeLinear yields a value."""
    node = value.producer()
    return node is not None and node.op_type == "DequantizeLinear"


def is_sparse(convolution: onnx_ir.Node, version: int) -> bool:
    """Return whether a Conv has a constant weight that is mostly zeros, of floats or of codes made floats."""
    weight, zero = convolution.inputs[1] if len(convolution.inputs) > 1 else None, None
    source = None if weight is None else weight.producer()
    if source is not None and source.op_type == "DequantizeLinear":
        weight, _, zero = [*source.inputs, None][:3]
    return mostly_zeros(weight, zero, version)


def mostly_zeros(weight: onnx_ir.Value | None, zero: onnx_ir.Value | None, version: int) -> bool:
    """Return whether a weight is a constant [outputs, ...] that is mostly zeros, or most codes of one are the zero."""
    share = zero_share(weight, zero, version)
    return share is not None and share > 1 - MOSTLY_ZEROS


def zero_share(weight: onnx_ir.Value | None, zero: onnx_ir.Value | None, version: int, axis: int = 0) -> float | None:
    """Return the share of zeros of a constant weight, or of codes that are the zero; None for no constant.

    A zero has one value, or one for each entry along the `axis` of the outputs.
    """
    array, offset = (None if value is None else constant_array(value, version) for value in (weight, zero))
    if array is None or not array.ndim:
        return None
    # a zero of a size that fits no outputs makes a weight that is not covered
    fits = offset is not None and offset.size in (1, array.shape[axis])
    zeros = offset.reshape(-1) if fits and offset is not None else np.zeros(1, dtype=array.dtype)
    along = [1] * array.ndim
    along[axis] = -1
    return 1 - np.count_nonzero(array != zeros.reshape(along)) / max(1, array.size)


def _rank(node: onnx_ir.Node) -> int:
    codes = node.inputs[0]
    source = None if codes is None else codes.producer()
    if source is not None and source.op_type == "QuantizeLinear":
        codes = source.inputs[0]  # a quantizer that leaves constants floats states no shape of their codes
    return 9 if codes is None or codes.shape is None else len(codes.shape)


def _reads_floats(layer: onnx_ir.Node, weight: onnx_ir.Node) -> bool:
    """Return whether a layer multiplies values that were not quantized by a weight of the rank that it has."""
    if layer.op_type not in ("Conv", "Gemm", "MatMul") or (_rank(weight) != 2 and layer.op_type != "Conv"):
        return False
    x, w = layer.inputs[:2]
    source = None if x is None else x.producer()
    return w is weight.outputs[0] and (source is None or source.op_type != "DequantizeLinear")


def _density(node: onnx_ir.Node) -> float:
    """Return the share of codes that are not their zero; 1 where these are not known."""
    codes = _array(node.inputs[0])
    zero = _array(node.inputs[2]) if len(node.inputs) > 2 else np.zeros(1, np.int8)
    if codes is None or zero is None or not codes.size:
        return 1.0
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 1
    block = node.attributes["block_size"].as_int() if "block_size" in node.attributes else 0
    if block and zero.ndim == 2:
        zero = np.repeat(zero, block, axis)[: codes.shape[0], : codes.shape[1]]
    elif zero.size > 1:
        zero = zero.reshape(-1, *[1] * (codes.ndim - 1 - axis % codes.ndim))
    return float(np.count_nonzero(np.not_equal(codes, zero))) / codes.size


def _array(value: onnx_ir.Value | None) -> NDArray[np.generic] | None:
    return None if value is None or value.const_value is None else value.const_value.numpy()
