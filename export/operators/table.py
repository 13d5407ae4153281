"""The table of export: op to the function that writes it."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx_ir as ir
from xdsl.ir import Operation

from ...dialect.ops.attention import AttentionOp, PastAttentionOp
from ...dialect.ops.elementwise import ActivateOp, AddOp, ConvertOp, DivOp, MulOp, PreluOp, SubOp
from ...dialect.ops.graphs import AggregateOp, AttendEdgesOp, EdgeListOp, SortEdgesOp
from ...dialect.ops.grouped_layers import GroupedLayersOp
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, QuantizedConv2dOp, Resample2dOp
from ...dialect.ops.layers import (
    BatchMatmulTransposeBOp,
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from ...dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TakeOp, TransposeOp
from ...foundation.extensible_table import ExtensibleTable
from ..writing.node_builder import NodeBuilder
from .attention import emit_attention
from .elementwise import emit_activate, emit_binary
from .graphs import emit_aggregate, emit_attend_edges, emit_edge_list, emit_sort_edges
from .images import emit_conv2d, emit_depthwise2d, emit_pool2d, emit_resample2d
from .layers import emit_grouped_layers, emit_linear
from .movement import (
    emit_concat,
    emit_product,
    emit_reshape,
    emit_split,
    emit_take,
    emit_transpose,
)
from .normalization import (
    emit_batch_norm,
    emit_layer_norm,
    emit_reduce_mean,
    emit_rms_norm,
    emit_softmax,
)
from .quantized import emit_convert, emit_quantized_conv2d

Emitter = Callable[[Any, NodeBuilder], Sequence[ir.Value]]
"""Adds the nodes for an op to a builder and returns one ONNX value for each of the op's results."""

EMITTERS: Final = ExtensibleTable[type[Operation], Emitter](
    {
        LinearOp: emit_linear,
        GroupedLayersOp: emit_grouped_layers,
        QuantizedConv2dOp: emit_quantized_conv2d,
        ConvertOp: emit_convert,
        ActivateOp: emit_activate,
        AddOp: emit_binary,
        SubOp: emit_binary,
        MulOp: emit_binary,
        DivOp: emit_binary,
        PreluOp: emit_binary,
        SoftmaxOp: emit_softmax,
        LogSoftmaxOp: emit_softmax,
        LayerNormOp: emit_layer_norm,
        RmsNormOp: emit_rms_norm,
        BatchNormOp: emit_batch_norm,
        ReduceMeanOp: emit_reduce_mean,
        AttentionOp: emit_attention,
        PastAttentionOp: emit_attention,
        Conv2dOp: emit_conv2d,
        Depthwise2dOp: emit_depthwise2d,
        Pool2dOp: emit_pool2d,
        Resample2dOp: emit_resample2d,
        AggregateOp: emit_aggregate,
        AttendEdgesOp: emit_attend_edges,
        EdgeListOp: emit_edge_list,
        SortEdgesOp: emit_sort_edges,
        ReshapeOp: emit_reshape,
        TransposeOp: emit_transpose,
        ConcatOp: emit_concat,
        SplitOp: emit_split,
        TakeOp: emit_take,
        BatchMatmulTransposeBOp: emit_product,
    }
)


def emit(op: Operation, builder: NodeBuilder) -> Sequence[ir.Value]:
    """Add the nodes that stand for `op` to `builder`, and return the values of its results.

    Raises:
        ValueError: the op has no form in ONNX (a tile, say, which only the native target forms).
    """
    emitter = EMITTERS.get(type(op))
    if emitter is None:
        names = ", ".join(known.name for known in EMITTERS)
        raise ValueError(f"{op.name} has no form in onnx, expected one of {names}")
    return emitter(op, builder)
