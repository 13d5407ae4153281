"""Groups of layers on codes that run depth first, neuron by neuron, for 64 rows: lines of bytes, one a neuron.

    lines   the inputs of the group | slots of neurons that are alive | the outputs     64 bytes each, a byte a column
    sums    + x[4 lines, unpacked] . 4 weights in every lane, for each quad of a neuron's inputs, see `quad_layer`

Lines hold codes: integers of eight bits that stand for values, value = scale * (code - zero).

Inputs are read where rows have become columns, outputs lie where they become rows. Neurons come in runs of one layer,
whose bounds of codes stay in registers; what becomes of sums, code of its own, is chosen once a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from ...dialect.attributes.depth_first_order import DepthFirstOrderAttr
from ...dialect.ops.tile_depth_first import LayerGroupAttr
from ...kernels.byte_lookup import LookupForm, within_bytes
from ...kernels.byte_quads import COLUMNS, QUAD
from ...sparse.csr import CscMatrix, Indices
from ..llvm.builder import Code
from ..llvm.flow import Blocks, fold
from ..llvm.values import FLOAT_BYTES, Bytes, Floats, Ints, Number, Shorts
from .byte_lanes import ByteLanes
from .lookup_layer import LayerEnd
from .quad_layer import LINE_BYTES, OutputArrays, QuadEnd, unpacked
from .rounding import WORDS

RUN_WORDS: Final = 3
"""Words of a run: its neurons, the number of their end, and their layer in the group."""

RECORD_WORDS: Final = 2
"""Words of a neuron: its line, or the number of its result, and its quads."""


class GroupLines(NamedTuple):
    """The lines of a group: those of inputs come first, whole quads of them, then the slots, then the outputs."""

    inputs: int
    slots: int
    outputs: int

    @staticmethod
    def of(inputs: int, slots: int, outputs: int) -> "GroupLines":
        """Return the lines for so many neurons of each kind."""
        return GroupLines(-(-inputs // QUAD) * QUAD, slots, -(-outputs // QUAD) * QUAD)

    @property
    def first_output(self) -> int:
        """The line of the first output."""
        return self.inputs + self.slots

    @property
    def line_bytes(self) -> int:
        """Bytes of all lines."""
        return COLUMNS * (self.first_output + self.outputs)


class GroupStream(NamedTuple):
    """The addresses of the arrays of a group."""

    runs: Ints
    """[1 + 3 runs]: how many there are, then each."""
    neurons: Ints
    """[neurons, 2] in their order."""
    bias: Floats
    multiplier: Floats
    bounds: Bytes
    """[layers, words]: what `Rounding` reads."""
    lines: Shorts
    """[quads, 4]: the lines of the inputs."""
    weights: Ints
    """[quads]: four bytes."""


def lines_of(group: LayerGroupAttr, inputs: int, outputs: int) -> GroupLines:
    """Return the lines of a group of layers."""
    return GroupLines.of(inputs, group.neuron_order.slot_count, outputs)


def depth_first_codes(code: Code, form: LookupForm, ends: Sequence[LayerEnd]) -> ir.Function:
    """Return `void (lines, floats, arrays...)`: all lines of a group, those of inputs there; floats [outputs, 64].

    `ends` are those that layers of the group have.
    """

    @code.kernel(f"depth_first_codes_{'_'.join(end.key for end in ends)}")
    def kernel(lines: Bytes, floats: Bytes, stream: GroupStream) -> None:
        nothing = lines.constant(0)
        loop = _Loop(ByteLanes.at(lines, form, code.target), code, lines, floats, stream)
        fold(stream.runs[0], (nothing, nothing), lambda index, done: loop.run(index, done, ends))

    return kernel


Place = tuple[Number, Number]
"""The neurons that are done, and their quads."""


@dataclass(frozen=True)
class _Loop:
    """The loop over runs under construction."""

    bytes: ByteLanes
    code: Code
    lines: Bytes
    floats: Bytes
    stream: GroupStream

    def run(self, index: Number, done: Place, ends: Sequence[LayerEnd]) -> Place:
        """Emit a run, by its end; return what is done behind it."""
        head = self.stream.runs.at(index * RUN_WORDS + 1)
        count, kind, layer = (head[word] for word in range(RUN_WORDS))
        choices = {f"end{number}": end for number, end in enumerate(ends)}
        flow = Blocks(index.builder, "computed")
        flow.switch(kind, {name: [number] for number, name in enumerate(choices)})
        behind: dict[ir.Block, Place] = {}
        for name, chosen in choices.items():
            flow.at(name)
            bounds = self.stream.bounds.after(layer * (WORDS * FLOAT_BYTES))
            arrays = OutputArrays(self.stream.bias, self.stream.multiplier, bounds)
            lanes = self.code.lanes(index, self.bytes.width)
            end = QuadEnd.of(lanes, chosen, arrays, self.lines, self.floats)
            (first, _), stop = done, done[0] + count
            quads = fold(stop, done[1], partial(self._neuron, end), start=first)
            behind[flow.go("computed")] = stop, quads
        flow.at("computed")
        return flow.merged(behind)

    def _neuron(self, end: QuadEnd, neuron: Number, quad: Number) -> Number:
        """Emit a neuron, whose quads begin at `quad`; return the first one of the next."""
        head = self.stream.neurons.at(neuron * RECORD_WORDS)
        line, stop = head[0], quad + head[1]
        nothing: list[ir.Value] = [self.bytes.zero()] * (COLUMNS // self.bytes.width)
        sums = fold(stop, nothing, self._step, start=quad)
        end.put(sums, neuron, self.lines.after(line * COLUMNS), self.floats.after(line * LINE_BYTES))
        return stop

    def _step(self, quad: Number, sums: list[ir.Value]) -> list[ir.Value]:
        """Return the sums after four inputs."""
        numbers = self.stream.lines.at(quad * QUAD)
        kind = ir.VectorType(self.lines.element, COLUMNS)
        loaded = [self.lines.after(numbers[place] * COLUMNS).load(kind, COLUMNS) for place in range(QUAD)]
        loaded = [self.bytes.centered(line) for line in loaded]
        builder = self.bytes.builder
        words = [builder.bitcast(values, self.bytes.vector) for values in unpacked(builder, loaded)]
        return self.bytes.add_products(sums, self.stream.weights.narrow(quad).value, words)


class OfLayer(NamedTuple):
    """A layer as the stream holds it: its weight, bias, multiplier and bounds, and the number of its end."""

    weight: CscMatrix
    bias: NDArray[np.generic]
    multiplier: NDArray[np.generic]
    bounds: NDArray[np.generic]
    end: int


def pack_group(
    layers: Sequence[OfLayer], order: DepthFirstOrderAttr, lines: GroupLines, *, floats: bool
) -> list[NDArray[np.generic]]:
    """Return the arrays of `GroupStream` for layers in an order; with `floats`, outputs are no lines."""
    sizes = [layers[0].weight.shape[0], *(layer.weight.shape[1] for layer in layers)]
    firsts = np.cumsum([0, *sizes])
    inputs, outputs = np.arange(sizes[0]), np.arange(sizes[-1])
    line = lines.inputs + order.slots
    line[inputs] = inputs
    line[firsts[-2] :] = outputs if floats else lines.first_output + outputs
    chosen = order.order
    layer_of = np.searchsorted(firsts, chosen, side="right") - 2
    changes = np.append(0, np.flatnonzero(np.diff(layer_of)) + 1)[: len(chosen)]
    kinds = np.array([layer.end for layer in layers])[layer_of[changes]]
    runs = np.column_stack([np.diff(np.append(changes, len(chosen))), kinds, layer_of[changes]])
    position = np.full(firsts[-1], -1)
    position[chosen] = np.arange(len(chosen))
    entries = [
        within_bytes(
            position[layer.weight.columns + firsts[number + 1]],
            line[layer.weight.rows + firsts[number]],
            np.rint(layer.weight.values).astype(np.int64),
        )
        for number, layer in enumerate(layers)
    ]
    owners, places, values = (
        np.concatenate([getattr(one, field) for one in entries]) for field in ("owners", "inputs", "values")
    )
    kept = np.flatnonzero(owners >= 0)
    kept = kept[np.argsort(owners[kept], kind="stable")]
    counts = np.bincount(owners[kept], minlength=len(chosen))
    quads = -(-counts // QUAD)
    rank: Indices = np.arange(len(kept)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(QUAD * (np.cumsum(quads) - quads), counts) + rank
    numbers, weights = np.zeros(QUAD * int(quads.sum()), np.uint16), np.zeros(QUAD * int(quads.sum()), np.int8)
    numbers[at], weights[at] = places[kept], values[kept]
    computed = chosen - sizes[0]
    return [
        np.append(len(runs), runs.ravel()).astype(np.int32),
        np.column_stack([line[chosen], quads]).astype(np.int32),
        np.concatenate([layer.bias for layer in layers])[computed],
        np.concatenate([layer.multiplier for layer in layers])[computed],
        np.concatenate([layer.bounds for layer in layers]),
        numbers,
        weights,
    ]
