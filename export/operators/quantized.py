"""Quantized layers in standard operators: QuantizeLinear, MatMulInteger, Add, Cast and Mul for each layer."""

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayer, QuantizedLayersOp
from redpebble.dialect.semantics.quantized import rounds_sums
from redpebble.export.operators.elementwise import emit_activation
from redpebble.export.writing.node_builder import NodeBuilder
from redpebble.sparse.csr import CscMatrix


def emit_quantized_layers(op: QuantizedLayersOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Five nodes a layer and its activation's, two more where the result is rounded, and a division in between.

    Sums that are rounded by one multiplication are steps of the next codes before they are rounded, so that bytes are
    those of onnxruntime's integer kernels: a product that is divided afterwards may be another float.
    """
    value, step = builder.operand(op.x), op.codes.data[0].scale
    for layer, following in zip(op.layers, [*op.codes.data[1:], None], strict=False):
        in_steps = following is not None and rounds_sums(layer)
        value = _layer(layer, value, step, following if in_steps else None, builder)
        if layer.activation is not None:
            value = emit_activation(layer.activation, value, builder)
        if following is not None:
            step = 1.0 if in_steps else following.scale
    if op.output is not None:
        zero = _zero(op.output, builder)
        rounded = builder.node("QuantizeLinear", value, builder.scalar(step), zero)
        value = builder.node("DequantizeLinear", rounded, builder.scalar(op.output.scale), zero)
    return (value,)


def _layer(
    layer: QuantizedLayer, value: ir.Value, step: float, steps_of: CodesAttr | None, builder: NodeBuilder
) -> ir.Value:
    """Return the values of a layer, in steps of some codes where they are given; `step` is that of its inputs."""
    if layer.codes.is_dynamic:
        return _dynamic_layer(layer, value, builder)
    zero = _zero(layer.codes, builder)
    codes = builder.node("QuantizeLinear", value, builder.scalar(step), zero)
    sums = _sums(layer, codes, zero, builder)
    bias = builder.node("Cast", builder.operand(layer.bias), to=int(ir.DataType.INT32))
    values = builder.node("Cast", builder.node("Add", sums, bias), to=int(ir.DataType.FLOAT))
    multiplier = builder.operand(layer.multiplier)
    if steps_of is not None:
        multiplier = builder.node("Div", multiplier, builder.scalar(steps_of.scale))
    return builder.node("Mul", values, multiplier)


def _dynamic_layer(layer: QuantizedLayer, value: ir.Value, builder: NodeBuilder) -> ir.Value:
    codes, scale, zero = builder.parts("DynamicQuantizeLinear", [value], 3)
    sums = builder.node("Cast", _sums(layer, codes, zero, builder), to=int(ir.DataType.FLOAT))
    values = builder.node("Mul", sums, builder.node("Mul", scale, builder.operand(layer.multiplier)))
    return builder.node("Add", values, builder.operand(layer.bias))


def _sums(layer: QuantizedLayer, codes: ir.Value, zero: ir.Value, builder: NodeBuilder) -> ir.Value:
    """Return the products of codes less their zero, before the bias."""
    least, greatest = _extremes(layer.weight)
    weight = builder.operand(layer.weight)
    if least.min(initial=0) >= -128 and greatest.max(initial=0) <= 127:
        operands = [codes, builder.node("Cast", weight, to=int(ir.DataType.INT8)), zero]
    else:
        # the weights of an output are bytes less a zero
        offset = builder.node("Sub", weight, builder.initializers.literal(least.astype(np.float32)))
        weight_zero = builder.initializers.literal((-least).astype(np.uint8))
        operands = [codes, builder.node("Cast", offset, to=int(ir.DataType.UINT8)), zero, weight_zero]
    return builder.node("MatMulInteger", *operands)


def _zero(codes: CodesAttr, builder: NodeBuilder) -> ir.Value:
    unsigned = codes.kind.data == "u8"
    return builder.initializers.literal(np.array(codes.zero, np.uint8) if unsigned else np.array(codes.zero, np.int8))


def _extremes(value: SSAValue) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the least and the greatest weight of each output, or 0."""
    owner = value.owner
    assert isinstance(owner, ConstantOp | SparseConstantOp)
    sparse = CscMatrix.from_dense(owner.array) if isinstance(owner, ConstantOp) else owner.weight
    least, greatest = (np.zeros(sparse.shape[1], np.int64) for _ in range(2))
    values = sparse.values.astype(np.int64)
    np.minimum.at(least, sparse.columns, values)
    np.maximum.at(greatest, sparse.columns, values)
    return least, greatest
