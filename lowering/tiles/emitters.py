"""The table of tiles: op to the function that emits it inside a tile."""

from collections.abc import Callable
from typing import Any, Final

from xdsl.ir import Operation

from ...dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, PreluOp, SubOp
from ...dialect.ops.layers import LayerNormOp, LinearOp, LogSoftmaxOp, ReduceMeanOp, RmsNormOp, SoftmaxOp
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.ops.network import NetworkOp
from ...foundation.extensible_table import ExtensibleTable
from ..llvm.reductions import log_softmax, reduce_mean, softmax
from .column_emitters import emit_layer_norm, emit_plain, emit_rms_norm
from .feature_emitters import emit_activate, emit_binary, emit_concat, emit_split
from .layer_emitters import emit_linear, emit_network
from .thread_shares import WHOLE, Cut
from .tile_code import TileCode

TileEmitter = Callable[[Any, TileCode, Cut], None]
"""Emits an op on the feature-major buffers of a tile; threads share it as the cut says.

An elementwise op may be cut at features, one that reduces over them by columns; see `thread_shares.cut_of`. An op that
keeps features may get its result's buffer in the place of an operand's.
"""

TILE_EMITTERS: Final = ExtensibleTable[type[Operation], TileEmitter](
    {
        LinearOp: emit_linear,
        NetworkOp: emit_network,
        ActivateOp: emit_activate,
        AddOp: emit_binary,
        SubOp: emit_binary,
        MulOp: emit_binary,
        DivOp: emit_binary,
        PreluOp: emit_binary,
        SoftmaxOp: emit_plain(softmax),
        LogSoftmaxOp: emit_plain(log_softmax),
        ReduceMeanOp: emit_plain(reduce_mean),
        LayerNormOp: emit_layer_norm,
        RmsNormOp: emit_rms_norm,
        ConcatOp: emit_concat,
        SplitOp: emit_split,
    }
)


def emit(op: Operation, tile: TileCode, cut: Cut = WHOLE) -> None:
    """Emit one op of the body of a tile; threads share it as `cut` says.

    Raises:
        ValueError: the op has no feature-major code.
    """
    emitter = TILE_EMITTERS.get(type(op))
    if emitter is None:
        raise ValueError(f"{op.name} has no code inside a pebble.tile")
    emitter(op, tile, cut)
