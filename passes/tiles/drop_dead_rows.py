"""Drop rows of the batch that have come to nothing, where nothing can come of them any more.

```mlir
%y = pebble.tile %x ... schedule <...> : (tensor<?x1024xf32>) -> tensor<?x1024xf32> { 120 layers }
// ->
%y = pebble.tile %x ... schedule <...> dead_rows <dropped after [0, 1, 2, 3, 5, ...], tiles of 96> ...
```

Where every layer from some place on makes zeros of zeros, as clamped layers with negative biases do, a row that is zero
there is zero at the end. How many rows die depends on the data, so this is done on request only. Dropping costs a look
at every value: it is done behind each of the first layers, where most rows die, and then ever more rarely.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp, chain_in
from ...dialect.ops.tile_chain import chain_of
from ...dialect.ops.tile_dead_rows import DeadRowsAttr, first_kept_zero
from ...dialect.tensors import shape_of
from ...kernels.tile_widths import BYTE_ROWS

WIDTHS: Final = (48, 32, 16)
"""Columns of a tile, the most first: three or two vectors of 16 fill the registers beside those of eight rows."""

TILE_SHARE: Final = 0.8
"""Share of the second-level cache that the values on both sides of a layer may take."""

EVERY: Final = 4
"""Layers behind each of which rows are dropped; from then on the distance is a quarter of the layers done."""


@dataclass(frozen=True)
class DropDeadRows(ModulePass):
    """Let tiles that are chains of layers drop the rows that are zero."""

    name = "pebble-drop-dead-rows"

    l2_bytes: int = 2 << 20
    """Bytes of a core's second-level cache."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.l2_bytes < 1:
            raise PassFailedException(f"{self.name}: expected l2_bytes of 1 or more, got {self.l2_bytes}")
        for tile in [found for found in op.walk() if isinstance(found, TileOp)]:
            # layers that run depth first have nothing between them
            tile.dead_rows = self._dropped(tile) if tile.depth_first is None else None

    def _dropped(self, tile: TileOp) -> DeadRowsAttr | None:
        layers = chain_of(tile.body.block)
        dropping = dropping_layers(first_kept_zero(layers), len(layers))
        on_codes = chain_in(tile) is not None
        # the memory of floats is cleared by who calls; values in between have nobody who does
        cleared = on_codes or any(isinstance(use.operation, ReturnOp) for use in tile.outputs[0].uses)
        width = BYTE_ROWS if on_codes else self._width(layers)
        return DeadRowsAttr(dropping, width) if dropping and cleared else None

    def _width(self, layers: Sequence[LinearOp]) -> int:
        rows = max(sum(shape_of(layer.weight)) for layer in layers)
        fitting = (width for width in WIDTHS if 4 * width * rows <= TILE_SHARE * self.l2_bytes)
        return next(fitting, WIDTHS[-1])


def dropping_layers(first: int, count: int) -> list[int]:
    """Return the layers of `count` behind which rows are dropped, when all from `first` on keep zeros."""
    dropping: list[int] = []
    layer = max(0, first - 1)
    while layer < count - 1:
        dropping.append(layer)
        done = layer - dropping[0] + 1
        layer += max(1, done // EVERY)
    return dropping
