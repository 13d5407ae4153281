"""Quantized layers in standard operators: QuantizeLinear, MatMulInteger, Add, Cast and Mul for each layer."""

import numpy as np
import onnx_ir as ir
from xdsl.ir import SSAValue

from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayer, QuantizedLayersOp
from redpebble.export.operators.elementwise import emit_activation
from redpebble.export.writing.node_builder import NodeBuilder


def emit_quantized_layers(op: QuantizedLayersOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Five nodes a layer and its activation's, and two where the result is rounded."""
    value = builder.operand(op.x)
    for layer in op.layers:
        value = _layer(layer, value, builder)
        if layer.activation is not None:
            value = emit_activation(layer.activation, value, builder)
    if op.output is not None:
        scale, zero = _scale_and_zero(op.output, builder)
        value = builder.node("DequantizeLinear", builder.node("QuantizeLinear", value, scale, zero), scale, zero)
    return (value,)


def _layer(layer: QuantizedLayer, value: ir.Value, builder: NodeBuilder) -> ir.Value:
    scale, zero = _scale_and_zero(layer.codes, builder)
    codes = builder.node("QuantizeLinear", value, scale, zero)
    least, greatest = _extremes(layer.weight)
    weight = builder.operand(layer.weight)
    if least >= -128 and greatest <= 127:
        operands = [codes, builder.node("Cast", weight, to=int(ir.DataType.INT8)), zero]
    else:
        # a constant of this range is one of eight bits less its zero
        offset = builder.node("Sub", weight, builder.scalar(least))
        weight_zero = builder.initializers.literal(np.array(-least, dtype=np.uint8))
        operands = [codes, builder.node("Cast", offset, to=int(ir.DataType.UINT8)), zero, weight_zero]
    sums = builder.node("MatMulInteger", *operands)
    bias = builder.node("Cast", builder.operand(layer.bias), to=int(ir.DataType.INT32))
    values = builder.node("Cast", builder.node("Add", sums, bias), to=int(ir.DataType.FLOAT))
    return builder.node("Mul", values, builder.operand(layer.multiplier))


def _scale_and_zero(codes: CodesAttr, builder: NodeBuilder) -> tuple[ir.Value, ir.Value]:
    unsigned = codes.kind.data == "u8"
    zero = np.array(codes.zero, np.uint8) if unsigned else np.array(codes.zero, np.int8)
    return builder.scalar(codes.scale), builder.initializers.literal(zero)


def _extremes(value: SSAValue) -> tuple[int, int]:
    """Return the least and the greatest weight, or 0."""
    owner = value.owner
    assert isinstance(owner, ConstantOp | SparseConstantOp)
    array = owner.array if isinstance(owner, ConstantOp) else owner.weight.values
    return min(0, int(array.min(initial=0))), max(0, int(array.max(initial=0)))
