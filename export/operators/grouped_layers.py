"""Layers in groups: each a convolution of width 1 over columns, transposed once on the way in and once on the way out.

A convolution refuses no columns at all, but not no images: `max(1, rows)` columns of `min(1, rows)` images.
"""

from math import prod

import onnx_ir as ir

from redpebble.dialect.ops.grouped_layers import GroupedLayer, GroupedLayersOp
from redpebble.dialect.tensors import DYNAMIC, Shape, shape_of
from redpebble.export.operators.activations import emit_activation
from redpebble.export.writing.node_builder import Draft

COLUMNS_LAST = (0, 2, 1)
"""The permutation from images of rows to images of columns, and back."""


def emit_grouped_layers(op: GroupedLayersOp, draft: Draft) -> tuple[ir.Value]:
    """Reshape and Transpose, Gather and Conv for each layer, Gather, Transpose and Reshape."""
    shape = shape_of(op.x)
    rows = _rows(draft.operand(op.x), shape, draft)
    images = draft.node("Reshape", rows, _image_shape(rows, shape, draft))
    values, count = draft.node("Transpose", images, perm=COLUMNS_LAST), shape[-1]
    for layer in op.layers:
        if layer.order is not None:
            values, count = _ordered(values, layer.order.tolist(), draft), len(layer.order)
        values, count = _layer(layer, values, count, draft), layer.outputs
    if op.last_order is not None:
        values = _ordered(values, op.last_order.tolist(), draft)
    images = draft.node("Transpose", values, perm=COLUMNS_LAST)
    target = [-1 if size == DYNAMIC else size for size in shape_of(op.result)]
    return (draft.node("Reshape", images, draft.integers(target)),)


def _rows(x: ir.Value, shape: Shape, draft: Draft) -> ir.Value:
    """Return `x` as a matrix, where the number of its rows is known only then."""
    return draft.node("Reshape", x, draft.integers([-1, shape[-1]])) if len(shape) > 2 and DYNAMIC in shape else x


def _image_shape(rows: ir.Value, shape: Shape, draft: Draft) -> ir.Value:
    """Return the shape [images, columns, values], before columns come last; a 0 in front copies the 0 rows."""
    *leading, values = shape
    if DYNAMIC not in leading:
        return draft.integers([1, prod(leading), values])
    count = draft.node("Gather", draft.node("Shape", rows), draft.integers([0]))
    some = draft.node("Cast", count, to=int(ir.DataType.BOOL))
    images = draft.node("Cast", some, to=int(ir.DataType.INT64))
    none = draft.node("Cast", draft.node("Not", some), to=int(ir.DataType.INT64))
    columns = draft.node("Add", count, none)
    return draft.node("Concat", images, columns, draft.integers([values]), axis=0)


def _ordered(values: ir.Value, order: list[int], draft: Draft) -> ir.Value:
    return draft.node("Gather", values, draft.integers(order), axis=1)


def _layer(layer: GroupedLayer, values: ir.Value, count: int, draft: Draft) -> ir.Value:
    operands = (draft.operand(layer.weight), draft.operand(layer.bias))
    value = draft.node("Conv", values, *operands, group=count // layer.group_inputs)
    draft.nodes[-1].name = layer.name
    return value if layer.activation is None else emit_activation(layer.activation, value, draft)
