"""Ops over the features of each column of a tile: softmax, normalisations, the mean; threads share the columns."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.layers import LayerNormOp, LogSoftmaxOp, ReduceMeanOp, RmsNormOp, SoftmaxOp
from ..llvm.builder import Code
from ..llvm.call_tables import with_room
from ..llvm.flow import call
from ..llvm.reductions import ColumnForm, column_parts, layer_norm, log_softmax, reduce_mean, rms_norm, softmax
from ..llvm.values import Floats
from .thread_shares import Cut
from .tile_code import TileCode, TileEmitter
from .tile_memory import features_of

ColumnKernel = Callable[[ColumnForm], ir.Function]
"""Returns `void (columns, parameters..., result, features)` for some of the columns of a tile."""


def emit_by_columns(
    tile: TileCode, kernel: ColumnKernel, x: SSAValue, parameters: Sequence[Floats], result: SSAValue
) -> None:
    """Emit the kernel on the columns of `x`, each share its own ones."""
    team = tile.team
    parts = column_parts(tile.code, tile.width, team.share_count) if team is not None else 1
    for part in range(parts):
        function = kernel(ColumnForm(tile.width, part, parts))
        with tile.only_for(part):
            call(function, tile.pointer(x), *parameters, tile.pointer(result), features_of(x))


def emit_plain(
    kernel: Callable[[Code, ColumnForm], ir.Function],
) -> Callable[[SoftmaxOp | LogSoftmaxOp | ReduceMeanOp, TileCode, Cut], None]:
    """Return the emitter of an op that a kernel without parameters computes."""

    def emit(op: SoftmaxOp | LogSoftmaxOp | ReduceMeanOp, tile: TileCode, _: Cut) -> None:
        emit_by_columns(tile, lambda form: kernel(tile.code, form), op.x, [], op.result)

    return emit


def emit_layer_norm(op: LayerNormOp, tile: TileCode, _: Cut) -> None:
    """Emit a layer normalisation; a bias that is missing is one of zeros."""
    features, epsilon = features_of(op.x), op.epsilon.value.data
    zeros = partial(_zeros, features)
    bias = tile.constant(("zeros", features), zeros).cast(Floats) if op.bias is None else tile.pointer(op.bias)
    parameters = [tile.pointer(op.scale), bias]
    emit_by_columns(tile, lambda form: layer_norm(tile.code, form, epsilon), op.x, parameters, op.result)


def emit_rms_norm(op: RmsNormOp, tile: TileCode, _: Cut) -> None:
    """Emit a normalisation by the mean square."""
    epsilon, scale = op.epsilon.value.data, tile.pointer(op.scale)
    emit_by_columns(tile, lambda form: rms_norm(tile.code, form, epsilon), op.x, [scale], op.result)


def _zeros(features: int, _: Operation | None) -> list[NDArray[np.float32]]:
    return [with_room(np.zeros(features, dtype=np.float32))]


COLUMN_EMITTERS: Final[Mapping[type[Operation], TileEmitter]] = MappingProxyType(
    {
        SoftmaxOp: emit_plain(softmax),
        LogSoftmaxOp: emit_plain(log_softmax),
        ReduceMeanOp: emit_plain(reduce_mean),
        LayerNormOp: emit_layer_norm,
        RmsNormOp: emit_rms_norm,
    }
)
"""Ops over the features of a column."""
