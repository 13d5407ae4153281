"""A dense product whose vectors run over the columns of a whole tile: the weights are the panels of `dense_outputs`.

Registers, for 4 outputs r and up to 3 vectors v of columns (16 with one for the weight):

    x[v]       columns of an input              V loads
    w          weight of output r in every lane          a broadcast for each output
    sum[r][v] += w * x[v]                       R V fma an input

All columns are there, so nothing is transposed and sums stay in registers: outputs of one panel take turns at the
columns of a block, which stay in the first-level cache. A sum takes its products in the order of the inputs, as in
`dense_blocks`.
"""

from itertools import pairwise
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.formats.dense_outputs import PANEL
from ..llvm.builder import Code
from ..llvm.flow import fold, loop, when
from ..llvm.values import Floats, Number
from .kernel_form import LinearForm, activated

OUTPUTS: Final = 4
"""Outputs at a time."""

VECTORS: Final = 3
"""Vectors of columns at a time, at most."""

MOST_LANES: Final = 8
"""Lanes up to which this is faster than vectors of outputs; with more it was not measured."""


class DenseLayer(NamedTuple):
    """Arguments of kernels over panels of dense weights."""

    x: Floats
    y: Floats
    weights: Floats
    bias: Floats
    inputs: Number
    outputs: Number


def fits(code: Code, form: LinearForm) -> bool:
    """Return whether a tile is whole vectors of a target, two at least."""
    lanes = code.target.lanes
    return lanes <= MOST_LANES and form.width % lanes == 0 and form.width >= 2 * lanes


def dense_columns(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, weights, bias, inputs, outputs)` for all columns of tiles of `form.width` columns."""

    @code.kernel(f"dense_columns_{form.key}")
    def kernel(layer: DenseLayer) -> None:
        lanes = code.lanes(layer.x)
        starts = range(0, form.width, lanes.width)
        blocks = -(-len(starts) // VECTORS)
        borders = [len(starts) * block // blocks for block in range(blocks + 1)]
        panels = (layer.outputs + (PANEL - 1)).quotient(PANEL)
        with loop(panels) as panel:
            weights = layer.weights.at(panel * PANEL * layer.inputs)
            for begin, end in pairwise(borders):
                some = starts[begin:end]
                with loop(panels.constant(PANEL), OUTPUTS) as first:
                    output = panel * PANEL + first
                    with when(output < layer.outputs):
                        _emit_block(code, form, layer, weights.at(first), output, some)

    return kernel


def _emit_block(
    code: Code, form: LinearForm, layer: DenseLayer, weights: Floats, output: Number, starts: range
) -> None:
    """Emit some outputs from one on, for the vectors of columns that begin at `starts`."""
    lanes = code.lanes(layer.x)
    biases = [lanes.splat(layer.bias[output + row]) for row in range(OUTPUTS)]
    sums: list[ir.Value] = [bias for bias in biases for _ in starts]

    def step(_: Number, state: tuple[Floats, Floats, list[ir.Value]]) -> tuple[Floats, Floats, list[ir.Value]]:
        x, entry, sums = state
        vectors = [lanes.load(x.at(start - starts[0]), lanes.size) for start in starts]
        sums = lanes.add_outer(sums, (entry[row] for row in range(OUTPUTS)), vectors)
        return x.at(form.width), entry.at(PANEL), sums

    sums = fold(layer.inputs, (layer.x.at(starts[0]), weights, sums), step)[2]
    for row in range(OUTPUTS):
        with when(output + row < layer.outputs):
            results = activated(lanes, form.activation, sums[row * len(starts) : (row + 1) * len(starts)])
            for start, value in zip(starts, results, strict=True):
                lanes.store(value, layer.y.at((output + row) * form.width + start), lanes.size)
