"""The kernel of a quantized layer on CPUs that multiply tiles (AMX): 32 rows of bytes with 32 outputs at once.

    tile 4, 5    x: 16 rows of 64 inputs each, as they lie in rows of codes
    tile 6, 7    weights of 64 inputs and 16 outputs each
    tile 0..3    += the products of each of the former with each of the latter             tdpbusd

The sums of a panel go through memory, rows of 32, and become codes or values as those of look-ups do. Nothing is
transposed.
"""

from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.byte_tiles import PANEL_OUTPUTS, TILE_INPUTS, TILE_ROWS
from ..llvm.builder import Code
from ..llvm.flow import branch, loop, when
from ..llvm.gather_scatter import load_ints
from ..llvm.matrix_tiles import CONFIGURATION, TILE_BYTES, MatrixTiles
from ..llvm.values import FLOAT_BYTES, Bytes, Floats, Ints, Longs, Number
from .lookup_layer import LayerEnd, PanelEnd
from .rounding import Strided

ROWS: Final = 2 * TILE_ROWS
"""Rows that are done at once."""

SUM_STRIDE: Final = FLOAT_BYTES * PANEL_OUTPUTS
"""Bytes from a row of sums of a panel to the next one."""

TILE_SCRATCH_BYTES: Final = len(CONFIGURATION) + ROWS * SUM_STRIDE

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
        sums = scratch.after(len(CONFIGURATION))
        panel_end = PanelEnd(code.lanes(x, TILE_ROWS), end, packed.bias, packed.multiplier, packed.tail)
        with loop(outputs.divided_up(PANEL_OUTPUTS)) as panel:
            steps = packed.starts.at(panel)
            begin, count = steps[0], steps[1] - steps[0]
            output = panel * PANEL_OUTPUTS
            with loop(rows, ROWS) as first:
                left, source = (rows - first).smaller(ROWS), x.after(first * stride)

                def sum_up(row_tiles: int, source: Bytes = source) -> None:
                    for tile in range(2 * row_tiles):
                        tiles.clear(tile)
                    with loop(count) as step:
                        here = begin + step
                        inputs, weights = source.after(packed.places[here]), packed.weights.after(2 * TILE_BYTES * here)
                        tiles.load(4, inputs, stride)
                        tiles.load(6, weights, TILE_INPUTS)
                        tiles.load(7, weights.after(TILE_BYTES), TILE_INPUTS)
                        tiles.multiply_bytes(0, 4, 6)
                        tiles.multiply_bytes(1, 4, 7)
                        if row_tiles > 1:
                            tiles.load(5, inputs.after(TILE_ROWS * stride), stride)
                            tiles.multiply_bytes(2, 5, 6)
                            tiles.multiply_bytes(3, 5, 7)
                    for tile in range(2 * row_tiles):
                        place = sums.after(tile // 2 * TILE_ROWS * SUM_STRIDE + tile % 2 * TILE_INPUTS)
                        tiles.store(tile, place, SUM_STRIDE)

                branch(left > TILE_ROWS, lambda: sum_up(2), lambda: sum_up(1))
                finish = _Ends(panel_end, sums, y.row(first))
                finish.emit(left, output, 0)
                with when(output + TILE_ROWS < outputs):
                    finish.emit(left, output + TILE_ROWS, TILE_INPUTS)
        tiles.release()

    return layer


class _Ends(NamedTuple):
    """Rows of sums of a panel, and where their results go."""

    end: PanelEnd
    sums: Bytes
    y: Strided

    def emit(self, rows: Number, output: Number, offset: int) -> None:
        """Emit the ends of 16 outputs, whose sums are some bytes behind the first ones of the panel."""
        whole = rows // END_ROWS * END_ROWS
        with loop(whole, END_ROWS) as row:
            self._some(row, END_ROWS, output, offset)
        with loop(rows - whole) as more:
            self._some(whole + more, 1, output, offset)

    def _some(self, row: Number, count: int, output: Number, offset: int) -> None:
        place = self.sums.after(row * SUM_STRIDE).after(offset)
        places = [place.after(SUM_STRIDE * one).cast(Ints) for one in range(count)]
        lanes = self.end.lanes
        self.end.emit([load_ints(lanes, one, lanes.size) for one in places], self.y.row(row), output)
