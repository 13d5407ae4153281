"""The table of tiles: op to the function that emits it inside a tile, file by file."""

from typing import Final

from xdsl.ir import Operation

from ...foundation.extensible_table import ExtensibleTable
from .column_emitters import COLUMN_EMITTERS
from .feature_emitters import FEATURE_EMITTERS
from .layer_emitters import LAYER_EMITTERS
from .thread_shares import WHOLE, Cut
from .tile_code import TileCode, TileEmitter

TILE_EMITTERS: Final = ExtensibleTable[type[Operation], TileEmitter](
    {**LAYER_EMITTERS, **FEATURE_EMITTERS, **COLUMN_EMITTERS}
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
