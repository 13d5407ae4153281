"""Sparse kernel family for batches in bfloat16 on CPUs that multiply tiles (AMX): 32 outputs with 32 columns at once.

For each chunk of inputs: round them, two inputs next to each other, into tiles that stay in the caches; then
for each panel with weights there: read sums, do the steps, write the sums. Registers:

    tile 4, 5    weights of 16 outputs and 32 inputs each
    tile 6, 7    the same inputs of 16 columns each: 16 pairs of inputs [16 columns][2]
    tile 0..3    += the products of each of the former with each of the latter             tdpbf16ps

Sums are float32, and lie in y from the bias to the activation. The instructions take denormal numbers to be 0.
"""

from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.formats.bfloat_tiles import BLOCK_INPUTS, CHUNK_BLOCKS, GROUP, PANEL_GROUPS
from ..cpu_target import BfloatProducts
from ..llvm.builder import Code
from ..llvm.flow import allocated, call, loop, select, when
from ..llvm.intrinsics import call_intrinsic
from ..llvm.matrix_tiles import CONFIGURATION, ROW_BYTES, TILE_BYTES, MatrixTiles
from ..llvm.values import FLOAT_BYTES, I16, Bytes, Floats, Ints, Longs, Number
from ..llvm.vectors import Lanes, int_constants
from .kernel_form import LinearForm, activated

COLUMNS: Final = 16
"""Columns of a tile, and of a vector."""

CHUNK: Final = BLOCK_INPUTS * CHUNK_BLOCKS


class Packed(NamedTuple):
    """The addresses of the arrays of a layer."""

    starts: Longs
    outputs: Longs
    blocks: Ints
    weights: Bytes
    bias: Floats


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel `void (x, y, packed arrays..., inputs, outputs)` for tiles of `form.width` columns.

    Raises:
        ValueError: the target lacks the instructions.
    """
    products = code.target.bfloat_products
    if products is None or not code.target.multiplies_bfloat_tiles:
        raise ValueError("kernel bfloat_tiles needs a CPU with amx-bf16")
    vectors, rounding = form.width // COLUMNS, _rounding(code, products, form.width)

    @code.kernel(f"bfloat_tiles_{form.key}")
    def kernel(x: Floats, y: Floats, packed: Packed, inputs: Number, outputs: Number) -> None:
        lanes, panels = code.lanes(x, COLUMNS), outputs.divided_up(GROUP * PANEL_GROUPS)
        rounded = allocated(x, Bytes, CHUNK_BLOCKS * vectors * TILE_BYTES, once=True)
        # whole groups are written, and y has no room for one where there are few outputs
        is_few = outputs < GROUP
        sums = select(is_few, allocated(x, Floats, GROUP * form.width, once=True), y)
        with loop(outputs) as output:
            bias = lanes.splat(packed.bias[output])
            for vector in range(vectors):
                lanes.store(bias, sums.at(output * form.width + vector * COLUMNS), lanes.size)
        panel_sums = _PanelSums(MatrixTiles(x.builder), packed, rounded, sums.cast(Bytes), vectors)
        panel_sums.tiles.configure(allocated(x, Bytes, len(CONFIGURATION), once=True))
        with loop(inputs.divided_up(CHUNK)) as chunk:
            first = chunk * CHUNK
            call(rounding, x.at(first * form.width), rounded, (inputs - first).smaller(CHUNK))
            with loop(panels) as panel:
                panel_sums.emit(chunk * panels + panel, panel)
        panel_sums.tiles.release()
        with loop(outputs if form.activation is not None else select(is_few, outputs, 0)) as output:
            for vector in range(vectors):
                place = output * form.width + vector * COLUMNS
                (value,) = activated(lanes, form.activation, [lanes.load(sums.at(place), lanes.size)])
                lanes.store(value, y.at(place), lanes.size)

    return kernel


def _rounding(code: Code, products: BfloatProducts, width: int) -> ir.Function:
    """Return `void (x, tiles, inputs)`: the rows of x of a chunk as tiles, with zeros up to a whole block."""
    vectors = width // COLUMNS

    @code.kernel(f"round_tiles_w{width}")
    def kernel(x: Floats, tiles: Bytes, inputs: Number) -> None:
        lanes = code.lanes(x, COLUMNS)
        zeros, pairs = lanes.splat(0.0), inputs // 2

        def write(pair: Number, vector: int, low: ir.Value, high: ir.Value) -> None:
            place = tiles.after(pair // COLUMNS * (vectors * TILE_BYTES) + pair % COLUMNS * ROW_BYTES)
            place.after(vector * TILE_BYTES).store(_paired(lanes, products, low, high), ROW_BYTES)

        with loop(pairs) as pair:
            for vector in range(vectors):
                rows = [x.at((2 * pair + one) * width + vector * COLUMNS) for one in range(2)]
                low, high = (lanes.load(row, lanes.size) for row in rows)
                write(pair, vector, low, high)
        with loop(inputs.divided_up(BLOCK_INPUTS) * (BLOCK_INPUTS // 2) - pairs) as more:
            for vector in range(vectors):
                write(pairs + more, vector, zeros, zeros)
        with when(pairs * 2 < inputs):
            for vector in range(vectors):
                last = x.at(pairs * (2 * width) + vector * COLUMNS)
                write(pairs, vector, lanes.load(last, lanes.size), zeros)

    return kernel


def _paired(lanes: Lanes, products: BfloatProducts, low: ir.Value, high: ir.Value) -> ir.Value:
    """Return two vectors of floats rounded into one, in turns."""
    count = 2 * COLUMNS
    halves = call_intrinsic(lanes.builder, products.round_two, ir.VectorType(I16, count), [high, low])
    turns = int_constants([half * COLUMNS + lane for lane in range(COLUMNS) for half in range(2)])
    return lanes.builder.shuffle_vector(halves, halves, turns)


class _PanelSums(NamedTuple):
    """The arrays that panels are summed up from, rounded inputs of a chunk, and sums [outputs, vectors of columns]."""

    tiles: MatrixTiles
    packed: Packed
    rounded: Bytes
    sums: Bytes
    vectors: int

    def emit(self, start: Number, panel: Number) -> None:
        """Add the products of a chunk, whose steps are in a place of the list of starts."""
        starts = self.packed.starts.at(start)
        first, count = starts[0], starts[1] - starts[0]
        stride = FLOAT_BYTES * COLUMNS * self.vectors
        groups = [self.packed.outputs[panel * PANEL_GROUPS + one] * stride for one in range(PANEL_GROUPS)]
        with when(count > 0):
            for vector in range(0, self.vectors, 2):
                vectors = range(vector, min(vector + 2, self.vectors))
                places = [
                    (2 * one + column - vector, self.sums.after(group).after(column * ROW_BYTES))
                    for one, group in enumerate(groups)
                    for column in vectors
                ]
                for tile, place in places:
                    self.tiles.load(tile, place, stride)
                with loop(count) as step:
                    self._step(first + step, vectors)
                # where the second group has outputs of the first one, without weights, the sums of that count
                for tile, place in places[::-1]:
                    self.tiles.store(tile, place, stride)

    def _step(self, step: Number, vectors: range) -> None:
        tiles, weights = self.tiles, self.packed.weights.after(step * (PANEL_GROUPS * TILE_BYTES))
        inputs = self.rounded.after(self.packed.blocks[step] * (self.vectors * TILE_BYTES))
        for one in range(PANEL_GROUPS):
            tiles.load(4 + one, weights.after(one * TILE_BYTES), ROW_BYTES)
        for index, vector in enumerate(vectors):
            tiles.load(6 + index, inputs.after(vector * TILE_BYTES), ROW_BYTES)
        for one in range(PANEL_GROUPS):
            for index in range(len(vectors)):
                tiles.multiply_bfloats(2 * one + index, 4 + one, 6 + index)
