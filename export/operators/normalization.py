"""Softmax, normalisations and the mean, with their older forms."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx_ir as ir
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.constants import constant_array
from ...dialect.ops.layers import BatchNormOp, LayerNormOp, LogSoftmaxOp, ReduceMeanOp, RmsNormOp, SoftmaxOp
from ...dialect.tensors import shape_of
from ..writing.node_builder import Emitter, NodeBuilder

SOFTMAX_OF_ONE_AXIS = 13
LAYER_NORM = 17
RMS_NORM = 23
REDUCE_AXES_AS_INPUT = 18


def emit_softmax(op: SoftmaxOp | LogSoftmaxOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Over the last axis, which means the same whether or not the operator flattens at the axis."""
    operator = "Softmax" if isinstance(op, SoftmaxOp) else "LogSoftmax"
    axis = -1 if builder.opset >= SOFTMAX_OF_ONE_AXIS else len(shape_of(op.x)) - 1
    return (builder.node(operator, builder.operand(op.x), axis=axis),)


def emit_layer_norm(op: LayerNormOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """LayerNormalization, before opset 17 the nodes that frameworks wrote for it."""
    x, epsilon = builder.operand(op.x), op.epsilon.value.data
    if builder.opset >= LAYER_NORM:
        parameters = [builder.operand(value) for value in (op.scale, op.bias) if value is not None]
        return (builder.node("LayerNormalization", x, *parameters, axis=-1, epsilon=epsilon),)
    rank = len(shape_of(op.x))
    centred = builder.node("Sub", x, _mean(x, rank, builder))
    value = _scaled(_normalised(centred, rank, epsilon, builder), op.scale, builder)
    return (value if op.bias is None else builder.node("Add", value, builder.operand(op.bias)),)


def emit_rms_norm(op: RmsNormOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """RMSNormalization, before opset 23 the nodes that frameworks wrote for it."""
    x, epsilon = builder.operand(op.x), op.epsilon.value.data
    if builder.opset >= RMS_NORM:
        return (builder.node("RMSNormalization", x, builder.operand(op.scale), axis=-1, epsilon=epsilon),)
    return (_scaled(_normalised(x, len(shape_of(op.x)), epsilon, builder), op.scale, builder),)


def emit_batch_norm(op: BatchNormOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """BatchNormalization as in inference."""
    inputs = [builder.operand(value) for value in op.operands]
    return (builder.node("BatchNormalization", *inputs, epsilon=op.epsilon.value.data),)


def emit_reduce_mean(op: ReduceMeanOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """The mean over the last axis."""
    return (_mean(builder.operand(op.x), len(shape_of(op.x)), builder),)


def _mean(x: ir.Value, rank: int, builder: NodeBuilder) -> ir.Value:
    # counted from the front: onnxruntime gives a mean of no rows the shape of its operand where the axis is negative
    if builder.opset >= REDUCE_AXES_AS_INPUT:
        return builder.node("ReduceMean", x, builder.integers([rank - 1]))
    return builder.node("ReduceMean", x, axes=[rank - 1])


def _normalised(x: ir.Value, rank: int, epsilon: float, builder: NodeBuilder) -> ir.Value:
    """x / sqrt(mean(x^2) + epsilon), with the Pow that runtimes look for when they fuse the nodes again."""
    square = builder.node("Pow", x, builder.scalar(2.0))
    shifted = builder.node("Add", _mean(square, rank, builder), builder.scalar(epsilon))
    return builder.node("Div", x, builder.node("Sqrt", shifted))


def _scaled(x: ir.Value, scale: SSAValue, builder: NodeBuilder) -> ir.Value:
    array = constant_array(scale)
    if array is not None and np.all(array == 1.0):
        return x
    return builder.node("Mul", x, builder.operand(scale))


NORMALIZATION_EMITTERS: Final[Mapping[type[Operation], Emitter]] = MappingProxyType(
    {
        SoftmaxOp: emit_softmax,
        LogSoftmaxOp: emit_softmax,
        LayerNormOp: emit_layer_norm,
        RmsNormOp: emit_rms_norm,
        BatchNormOp: emit_batch_norm,
        ReduceMeanOp: emit_reduce_mean,
    }
)
