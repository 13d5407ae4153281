"""Softmax, normalisations and the mean, with their older forms."""

import numpy as np
import onnx_ir as ir
from xdsl.ir import SSAValue

from redpebble.dialect.ops.constants import constant_array
from redpebble.dialect.ops.layers import BatchNormOp, LayerNormOp, LogSoftmaxOp, ReduceMeanOp, RmsNormOp, SoftmaxOp
from redpebble.dialect.tensors import shape_of
from redpebble.export.writing.node_builder import Draft

SOFTMAX_OF_ONE_AXIS = 13
LAYER_NORM = 17
RMS_NORM = 23
REDUCE_AXES_AS_INPUT = 18


def emit_softmax(op: SoftmaxOp | LogSoftmaxOp, draft: Draft) -> tuple[ir.Value]:
    """Over the last axis, which means the same whether or not the operator flattens at the axis."""
    operator = "Softmax" if isinstance(op, SoftmaxOp) else "LogSoftmax"
    axis = -1 if draft.opset >= SOFTMAX_OF_ONE_AXIS else len(shape_of(op.x)) - 1
    return (draft.node(operator, draft.operand(op.x), axis=axis),)


def emit_layer_norm(op: LayerNormOp, draft: Draft) -> tuple[ir.Value]:
    """LayerNormalization, before opset 17 the nodes that frameworks wrote for it."""
    x, epsilon = draft.operand(op.x), op.epsilon.value.data
    if draft.opset >= LAYER_NORM:
        parameters = [draft.operand(value) for value in (op.scale, op.bias) if value is not None]
        return (draft.node("LayerNormalization", x, *parameters, axis=-1, epsilon=epsilon),)
    rank = len(shape_of(op.x))
    centred = draft.node("Sub", x, _mean(x, rank, draft))
    value = _scaled(_normalised(centred, rank, epsilon, draft), op.scale, draft)
    return (value if op.bias is None else draft.node("Add", value, draft.operand(op.bias)),)


def emit_rms_norm(op: RmsNormOp, draft: Draft) -> tuple[ir.Value]:
    """RMSNormalization, before opset 23 the nodes that frameworks wrote for it."""
    x, epsilon = draft.operand(op.x), op.epsilon.value.data
    if draft.opset >= RMS_NORM:
        return (draft.node("RMSNormalization", x, draft.operand(op.scale), axis=-1, epsilon=epsilon),)
    return (_scaled(_normalised(x, len(shape_of(op.x)), epsilon, draft), op.scale, draft),)


def emit_batch_norm(op: BatchNormOp, draft: Draft) -> tuple[ir.Value]:
    """BatchNormalization as in inference."""
    inputs = [draft.operand(value) for value in op.operands]
    return (draft.node("BatchNormalization", *inputs, epsilon=op.epsilon.value.data),)


def emit_reduce_mean(op: ReduceMeanOp, draft: Draft) -> tuple[ir.Value]:
    """The mean over the last axis."""
    return (_mean(draft.operand(op.x), len(shape_of(op.x)), draft),)


def _mean(x: ir.Value, rank: int, draft: Draft) -> ir.Value:
    # counted from the front: onnxruntime gives a mean of no rows the shape of its operand where the axis is negative
    if draft.opset >= REDUCE_AXES_AS_INPUT:
        return draft.node("ReduceMean", x, draft.integers([rank - 1]))
    return draft.node("ReduceMean", x, axes=[rank - 1])


def _normalised(x: ir.Value, rank: int, epsilon: float, draft: Draft) -> ir.Value:
    """x / sqrt(mean(x^2) + epsilon), with the Pow that runtimes look for when they fuse the nodes again."""
    square = draft.node("Pow", x, draft.scalar(2.0))
    shifted = draft.node("Add", _mean(square, rank, draft), draft.scalar(epsilon))
    return draft.node("Div", x, draft.node("Sqrt", shifted))


def _scaled(x: ir.Value, scale: SSAValue, draft: Draft) -> ir.Value:
    array = constant_array(scale)
    if array is not None and np.all(array == 1.0):
        return x
    return draft.node("Mul", x, draft.operand(scale))
