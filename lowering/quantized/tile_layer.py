"""The kernel of a quantized layer on CPUs that multiply tiles (AMX): 32 rows of bytes with 32 outputs at once.

    tile 4, 5    x: 16 rows of 64 inputs each, as they lie in rows of codes
    tile 6, 7    weights of 64 inputs and 16 outputs each
    tile 0..3    += the products of each of the former with each of the latter             tdpbusd

The sums of a panel go through memory, rows of 32, and become codes or values as those of look-ups do. Nothing is
transposed. The unit that multiplies tiles is not that of vectors: between the products of a block, a few instructions
that each take long, stand the ends of the block before it, many short ones.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.byte_tiles import PANEL_OUTPUTS, TILE_INPUTS, TILE_ROWS
from ..llvm.builder import Code
from ..llvm.flow import loop, select, when
from ..llvm.gather_scatter import load_ints
from ..llvm.matrix_tiles import CONFIGURATION, TILE_BYTES, MatrixTiles
from ..llvm.values import FLOAT_BYTES, Bytes, Floats, Ints, Longs, Number, Truth
from .lookup_layer import LayerEnd, PanelEnd
from .rounding import Strided

ROWS: Final = 2 * TILE_ROWS
"""Rows that are done at once."""

SUM_STRIDE: Final = FLOAT_BYTES * PANEL_OUTPUTS
"""Bytes from a row of sums of a panel to the next one."""

TILE_SCRATCH_BYTES: Final = len(CONFIGURATION) + ROWS * SUM_STRIDE

BLOCK_TILES: Final = 2
"""Tiles of rows, and of outputs, of a block."""

END_ROWS: Final = 4
"""Rows whose ends are worked on at once."""


class PackedTiles(NamedTuple):
    """The addresses of the arrays of a layer."""

    starts: Longs
    places: Ints
    weights: Bytes
    bias: Ints
    multiplier: Floats
    tail: Bytes
    """The bounds of codes, or what is added to values."""


def tile_layer(code: Code, end: LayerEnd, stride: int) -> ir.Function:
    """Return `void (x, y, y stride, packed arrays..., rows, outputs, scratch)`; rows of bytes are `stride` apart.

    As many rows as whole tiles have are read, and whole tiles of inputs.
    """

    @code.kernel(f"tiles_{stride}_{end.key}")
    def layer(x: Bytes, y: Strided, packed: PackedTiles, rows: Number, outputs: Number, scratch: Bytes) -> None:
        tiles = MatrixTiles(x.builder)
        tiles.configure(scratch)
        panel_end = PanelEnd(code.lanes(x, TILE_ROWS), end, packed.bias, packed.multiplier, packed.tail)
        ends = _Ends(panel_end, scratch.after(len(CONFIGURATION)), y, outputs)
        row_blocks = rows.divided_up(ROWS)
        blocks = outputs.divided_up(PANEL_OUTPUTS) * row_blocks
        with loop(blocks + 1) as block:
            # behind the last block there are ends alone
            is_block = block < blocks
            here, before = (one.larger(0).smaller(blocks - 1) for one in (block, block - 1))
            borders, first = packed.starts.at(here // row_blocks), here % row_blocks * ROWS
            begin, count = borders[0], select(is_block, borders[1] - borders[0], 0)
            is_wide = rows - first > TILE_ROWS
            products = _Products(tiles, x.after(first * stride), stride, packed, is_wide)
            summed = before % row_blocks * ROWS
            done = select(block > 0, (rows - summed).smaller(ROWS), 0)
            output, groups = before // row_blocks * PANEL_OUTPUTS, done // END_ROWS
            products.clear()
            with loop(count.larger(groups)) as turn:
                for half in range(BLOCK_TILES):
                    with when(turn < count):
                        products.add(begin + turn, half)
                    with when(turn < groups):
                        ends.emit(turn * END_ROWS, END_ROWS, summed, output, half)
            with loop(done - groups * END_ROWS) as more:
                for half in range(BLOCK_TILES):
                    ends.emit(groups * END_ROWS + more, 1, summed, output, half)
            with when(is_block):
                products.store(ends.sums)
        tiles.release()

    return layer


@dataclass(frozen=True)
class _Products:
    """Products of a block of up to 32 rows with the outputs of a panel."""

    tiles: MatrixTiles
    x: Bytes
    stride: int
    packed: PackedTiles
    is_wide: Truth
    """Whether there are more than 16 rows."""

    def clear(self) -> None:
        """Emit sums of 0."""
        for tile in range(4):
            self.tiles.clear(tile)

    def add(self, step: Number, half: int) -> None:
        """Emit the products of 64 inputs in the first 16 rows, which load the weights, or in the others."""
        inputs = self.x.after(self.packed.places[step]).after(half * TILE_ROWS * self.stride)
        if half:
            with when(self.is_wide):
                self._multiply(inputs, half)
            return
        weights = self.packed.weights.after(2 * TILE_BYTES * step)
        self.tiles.load(6, weights, TILE_INPUTS)
        self.tiles.load(7, weights.after(TILE_BYTES), TILE_INPUTS)
        self._multiply(inputs, half)

    def _multiply(self, inputs: Bytes, half: int) -> None:
        self.tiles.load(4 + half, inputs, self.stride)
        self.tiles.multiply_bytes(2 * half, 4 + half, 6)
        self.tiles.multiply_bytes(2 * half + 1, 4 + half, 7)

    def store(self, sums: Bytes) -> None:
        """Emit the writing of rows of sums."""
        self._store_rows(0, sums)
        with when(self.is_wide):
            self._store_rows(2, sums.after(TILE_ROWS * SUM_STRIDE))

    def _store_rows(self, first: int, sums: Bytes) -> None:
        for half in range(2):
            self.tiles.store(first + half, sums.after(half * TILE_INPUTS), SUM_STRIDE)


class _Ends(NamedTuple):
    """Rows of sums of a panel, and where the results of all go."""

    end: PanelEnd
    sums: Bytes
    y: Strided
    outputs: Number

    def emit(self, row: Number, count: int, first: Number, output: Number, half: int) -> None:
        """Emit the ends of half of the outputs for some rows of the sums, whose block begins at a row and an output."""
        place, lanes = self.sums.after(row * SUM_STRIDE).after(half * TILE_INPUTS), self.end.lanes
        places = [place.after(SUM_STRIDE * one).cast(Ints) for one in range(count)]
        start = output + half * TILE_ROWS
        with when(start < self.outputs):
            sums = [load_ints(lanes, one, lanes.size) for one in places]
            self.end.emit(sums, self.y.row(first + row), start)
