"""Layers: one Gemm or MatMul, an Add where Gemm does not reach, and the activation's nodes.

Layers in groups are convolutions of width 1 over columns, transposed once before the first and once behind the last. A
convolution refuses no columns at all, but not no images: `max(1, rows)` columns of `min(1, rows)` images.
"""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Final

import onnx_ir as ir
from xdsl.ir import Operation

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.constants import few_bits_of
from ...dialect.ops.grouped_layers import GroupedLayer, GroupedLayersOp
from ...dialect.ops.layers import LinearOp
from ...dialect.tensors import DYNAMIC, Shape, shape_of
from ..writing.node_builder import Emitter, NodeBuilder
from .elementwise import emit_activation
from .few_bits import emit_few_bits
from .quantized import emit_linear_on_codes

GEMM_WITHOUT_C = 11
"""The opset from which Gemm may come without C."""


def emit_linear(op: LinearOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Gemm for matrices; MatMul and Add for any other rank, which Gemm refuses. The weight is rounded already."""
    if op.times is not None:
        return emit_linear_on_codes(op, builder)
    x = builder.operand(op.x)
    few_bits = few_bits_of(op.weight)
    if op.is_rounded:
        x = emit_activation(ActivationAttr("bfloat16"), x, builder)
    if few_bits is not None and not op.is_rounded:
        value = emit_few_bits(op, few_bits, x, builder)
    else:
        value = _gemm(op, x, builder) if len(shape_of(op.x)) == 2 else _matmul(op, x, builder)
    if op.activation is not None:
        value = emit_activation(op.activation, value, builder)
    return (value,)


def _gemm(op: LinearOp, x: ir.Value, builder: NodeBuilder) -> ir.Value:
    weight, transposed = builder.weight(op.weight)
    if op.bias is None and not transposed:
        return builder.node("MatMul", x, weight)
    inputs = [x, weight]
    if op.bias is not None:
        inputs.append(builder.bias(op.bias))
    elif builder.opset < GEMM_WITHOUT_C:
        inputs.append(builder.scalar(0.0))
    return builder.node("Gemm", *inputs, transB=1) if transposed else builder.node("Gemm", *inputs)


def _matmul(op: LinearOp, x: ir.Value, builder: NodeBuilder) -> ir.Value:
    product = builder.node("MatMul", x, builder.operand(op.weight))
    if op.bias is None:
        return product
    wide = len(shape_of(op.x)) > 1
    return builder.node("Add", product, builder.bias(op.bias) if wide else builder.operand(op.bias))


COLUMNS_LAST = (0, 2, 1)
"""The permutation from images of rows to images of columns, and back."""


def emit_grouped_layers(op: GroupedLayersOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Reshape and Transpose, Gather and Conv for each layer, Gather, Transpose and Reshape."""
    shape = shape_of(op.x)
    rows = _rows(builder.operand(op.x), shape, builder)
    images = builder.node("Reshape", rows, _image_shape(rows, shape, builder))
    values, count = builder.node("Transpose", images, perm=COLUMNS_LAST), shape[-1]
    for layer in op.layers:
        if layer.order is not None:
            values, count = _ordered(values, layer.order.tolist(), builder), len(layer.order)
        values, count = _layer(layer, values, count, builder), layer.outputs
    if op.last_order is not None:
        values = _ordered(values, op.last_order.tolist(), builder)
    images = builder.node("Transpose", values, perm=COLUMNS_LAST)
    target = [-1 if size == DYNAMIC else size for size in shape_of(op.result)]
    return (builder.node("Reshape", images, builder.integers(target)),)


def _rows(x: ir.Value, shape: Shape, builder: NodeBuilder) -> ir.Value:
    """Return `x` as a matrix, where the number of its rows is known only then."""
    return builder.node("Reshape", x, builder.integers([-1, shape[-1]])) if len(shape) > 2 and DYNAMIC in shape else x


def _image_shape(rows: ir.Value, shape: Shape, builder: NodeBuilder) -> ir.Value:
    """Return the shape [images, columns, values], before columns come last; a 0 in front copies the 0 rows."""
    *leading, values = shape
    if DYNAMIC not in leading:
        return builder.integers([1, prod(leading), values])
    count = builder.node("Gather", builder.node("Shape", rows), builder.integers([0]))
    some = builder.node("Cast", count, to=int(ir.DataType.BOOL))
    images = builder.node("Cast", some, to=int(ir.DataType.INT64))
    none = builder.node("Cast", builder.node("Not", some), to=int(ir.DataType.INT64))
    columns = builder.node("Add", count, none)
    return builder.node("Concat", images, columns, builder.integers([values]), axis=0)


def _ordered(values: ir.Value, order: list[int], builder: NodeBuilder) -> ir.Value:
    return builder.node("Gather", values, builder.integers(order), axis=1)


def _layer(layer: GroupedLayer, values: ir.Value, count: int, builder: NodeBuilder) -> ir.Value:
    operands = (builder.operand(layer.weight), builder.operand(layer.bias))
    value = builder.node("Conv", values, *operands, group=count // layer.group_inputs)
    builder.nodes[-1].name = layer.name
    return value if layer.activation is None else emit_activation(layer.activation, value, builder)


LAYERS_EMITTERS: Final[Mapping[type[Operation], Emitter]] = MappingProxyType(
    {
        LinearOp: emit_linear,
        GroupedLayersOp: emit_grouped_layers,
    }
)
