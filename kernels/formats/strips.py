"""`strips`: rows four at a time, connections in steps of one for each row, inputs read by several shared.

The inputs are cut into blocks whose part of x stays in the first-level cache; in each, rows of about equal counts make
strips. A step multiplies one connection of each of the four rows, and says which of them share their input: all, three,
two and two, or none (`SHARINGS`). Steps of the same sharing come together. How many of a strip's inputs are shared by
which rows is chance, and the end of every loop over them would surprise the processor, so a block has numbers of steps
that nearly all its strips can make; what is shared beyond these is read again by a smaller set of rows.

Rows with fewer connections than others of their strip have their last one in parts, as in `narrow_blocks`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..family import KernelFamily, LayerWeights
from ..row_segments import (
    FIRST,
    LAST,
    OFFSET_UNIT,
    Indices,
    PackedBlocks,
    block_list,
    ranges,
    records_of,
)
from ..tile_widths import WIDTHS
from ..work import Layer, Tile, Work

Floats = NDArray[np.float32]

STRIP_ROWS: Final = 4
"""Rows of a strip."""

SETS: Final = 1 << STRIP_ROWS
"""Sets of rows of a strip, as numbers with a bit a row."""

SHARINGS: Final = (
    (0b1111,),
    (0b0111, 0b1000),
    (0b1011, 0b0100),
    (0b1101, 0b0010),
    (0b1110, 0b0001),
    (0b0011, 0b1100),
    (0b0101, 0b1010),
    (0b1001, 0b0110),
    (0b0001, 0b0010, 0b0100, 0b1000),
)
"""Kinds of steps: the sets of rows that read an input together."""

HEADER: Final = 12
"""Offsets that a strip begins with: how many steps there are of each kind, and some that are not used."""

BLOCK_INPUTS: Final = 128
"""Inputs of a block, at most: their columns take two thirds of the first-level cache in tiles of 64."""

SELDOM: Final = 0.1
"""Share of the strips that may have fewer steps of a kind than the others."""

SIZES: Final = np.array([code.bit_count() for code in range(SETS)], dtype=np.int64)


class _Reads(NamedTuple):
    """Inputs that are read, each for a set of the rows of a strip."""

    strip: Indices
    readers: Indices
    """The set."""
    source: Indices
    halvings: Indices
    """[reads, 4]: how often a row's weight is halved, as it is a part of a connection."""

    def ordered(self) -> "_Reads":
        """Return the same by strips, in a strip by sets."""
        keys = self.strip * SETS + self.readers
        # few keys are sorted by radix
        order = np.argsort(keys.astype(np.uint16) if keys.max(initial=0) < 1 << 16 else keys, kind="stable")
        return self.chosen(order)

    def chosen(self, positions: Indices) -> "_Reads":
        return _Reads(self.strip[positions], self.readers[positions], self.source[positions], self.halvings[positions])

    def sets(self, strips: int) -> Indices:
        """Return how many there are of each set, [strips, SETS]."""
        return np.bincount(self.strip * SETS + self.readers, minlength=strips * SETS).reshape(strips, SETS)


class _Block(NamedTuple):
    """The strips of a block of inputs."""

    rows: Indices
    """[strips, 4]."""
    counts: Indices
    """[strips]: fours of weights, and of offsets."""
    weights: Floats
    offsets: Indices


def pack(weights: LayerWeights) -> PackedBlocks:
    """Return the packed form of a layer, whose panels are strips as far as may be.

    The offsets of a strip are its header, then those of its steps, one for each set of rows; it has as many weights,
    four a step. Some of either at its end may stand for nothing.
    """
    dense = weights.dense
    inputs, outputs = dense.shape
    blocks = max(1, -(-inputs // BLOCK_INPUTS))
    borders = np.arange(blocks + 1) * inputs // blocks
    panels = _panels(outputs, weights.panels)
    packed = [_packed_block(np.ascontiguousarray(dense[borders[i] : borders[i + 1]].T), panels) for i in range(blocks)]
    counts = np.concatenate([block.counts for block in packed])
    number = np.repeat(np.arange(blocks), [len(block.counts) for block in packed])
    # the kernel fetches weights and offsets by itself; rows of y arrive while it does, without being fetched
    flags = FIRST * (number == 0) + LAST * (number == blocks - 1)
    return PackedBlocks(
        block_list(borders[number]),
        records_of(np.concatenate([block.rows for block in packed]), counts, flags),
        np.concatenate([block.weights for block in packed]),
        np.concatenate([block.offsets for block in packed]).astype(np.uint16),
        weights.bias,
    )


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, lines of x, weights, their multiply-adds, strips, their lines, bytes of y again."""
    weights, passes, blocks = float(layer.connections), tile.passes_of(4), max(1, -(-layer.inputs // BLOCK_INPUTS))
    # the inputs that a row at least of a strip reads; what is not evenly shared is read again
    reads = layer.inputs * layer.outputs / STRIP_ROWS * (1 - (1 - layer.density) ** STRIP_ROWS)
    strips = layer.outputs / STRIP_ROWS * blocks
    again = 8 * STRIP_ROWS * strips * tile.width * tile.far_share(layer.outputs)
    units = (1.0, reads * tile.line, weights * passes, weights * tile.line, strips * passes, strips * tile.line, again)
    return Work(units, 6 * weights + 40 * strips, passes)


def _panels(outputs: int, panels: Sequence[Indices]) -> Indices:
    """Return the panel of each output, [outputs]. Outputs outside every panel share one extra label."""
    labels, first = np.full(outputs, np.iinfo(np.int64).max), 0
    for members in panels:
        if members.shape[1] % STRIP_ROWS == 0:
            labels[members] = first + np.arange(len(members))[:, None]
            first += len(members)
    return labels


def _packed_block(dense: Floats, panels: Indices) -> _Block:
    """Return the strips of a block of weights [outputs, inputs], outputs of one of `panels` together where possible."""
    mask = dense != 0
    connections = mask.sum(axis=1)
    rows = _strips(connections, panels)
    reads = _in_parts(_shared(mask, rows), connections[rows])
    steps = _steps(reads.sets(len(rows)), connections[rows].max(axis=1, initial=0))
    for size in range(STRIP_ROWS, 1, -1):
        reads = _cut(reads.ordered(), size, steps)
    return _laid_out(reads.ordered(), dense, rows, steps)


def _strips(connections: Indices, panels: Indices) -> Indices:
    """Return the rows of strips [strips, 4], by their panels and their connections.

    Where rows lack, a strip's first one comes again.

    It computes and writes the same sums twice, as in `groups_of`. Rows without connections are among themselves.
    """
    order = np.lexsort((connections, panels, connections > 0))
    empty = int(np.count_nonzero(connections == 0))
    filled: list[Indices] = []
    for part in (order[:empty], order[empty:]):
        left_over = len(part) % STRIP_ROWS
        filled += [part, np.repeat(part[len(part) - left_over :][:1], -left_over % STRIP_ROWS)]
    return np.concatenate(filled).reshape(-1, STRIP_ROWS)


def _shared(mask: NDArray[np.bool_], rows: Indices) -> _Reads:
    """Return the inputs of every strip, each once, with the set of rows that read it."""
    sets = np.zeros((len(rows), mask.shape[1]), dtype=np.uint8)
    for row in range(STRIP_ROWS):
        sets |= mask[rows[:, row]].view(np.uint8) << row
    strip, source = np.nonzero(sets)
    halvings = np.zeros((len(strip), STRIP_ROWS), dtype=np.int64)
    return _Reads(strip, sets[strip, source].astype(np.int64), source, halvings)


def _in_parts(reads: _Reads, connections: Indices) -> _Reads:
    """Return the reads of strips whose rows have `connections` [strips, 4], so that all rows of a strip have as many.

    The parts of a connection are a half, a quarter, ..., and the smallest of them twice.
    """
    missing = connections.max(axis=1, keepdims=True, initial=0) - connections
    parts = [reads]
    for row in range(STRIP_ROWS):
        having = np.flatnonzero(reads.readers >> row & 1)
        last = having[np.flatnonzero(np.diff(reads.strip[having], append=-1))]
        wanted = missing[reads.strip[last], row]
        reads.halvings[last, row] = wanted
        more = reads.chosen(np.repeat(last, wanted))
        more.halvings[:] = 0
        more.halvings[:, row] = ranges(wanted) + 1
        parts.append(more._replace(readers=np.full(len(more.strip), 1 << row)))
    return _joined(parts)


def _steps(sets: Indices, wanted: Indices) -> Indices:
    """Return the steps of each kind [strips, kinds], given the inputs of each set [strips, sets], and all steps."""
    sets, left = sets.copy(), wanted.copy()
    steps = np.zeros((len(sets), len(SHARINGS)), dtype=np.int64)
    for kind, sharing in enumerate(SHARINGS[:-1]):
        possible = np.minimum(sets[:, list(sharing)].min(axis=1), left)
        usual = np.quantile(possible, SELDOM, method="lower") if len(possible) else 0
        steps[:, kind] = np.minimum(possible, usual)
        left -= steps[:, kind]
        beyond = sets[:, sharing[0]] - steps[:, kind]
        cuts = _cuts(sharing[0])
        for number, cut in enumerate(cuts):
            sets[:, cut] += ((beyond + len(cuts) - 1 - number) // len(cuts))[:, None]
    steps[:, -1] = left
    return steps


def _cuts(readers: int) -> list[tuple[int, int]]:
    """Return the cuts of a set of rows in two: a pair and what is left, or two single rows."""
    ones = [1 << row for row in range(STRIP_ROWS) if readers >> row & 1]
    firsts = ones[:1] if len(ones) == 2 else [one | other for one in ones for other in ones if one < other]
    return [(first, readers - first) for first in firsts]


def _cut(reads: _Reads, size: int, steps: Indices) -> _Reads:
    """Return ordered reads after sets of `size` rows for which there are no steps are cut in two."""
    rank = ranges(reads.sets(len(steps)).ravel())
    parts = [reads._replace(readers=reads.readers.copy())]
    for kind, sharing in enumerate(SHARINGS[:-1]):
        for one in [one for one in sharing if SIZES[one] == size]:
            beyond = rank - steps[reads.strip, kind]
            positions = np.flatnonzero((reads.readers == one) & (beyond >= 0))
            cuts = np.array(_cuts(one), dtype=np.int64)
            first, second = cuts[beyond[positions] % len(cuts)].T
            parts[0].readers[positions] = first
            parts.append(reads.chosen(positions)._replace(readers=second))
    return _joined(parts)


def _joined(parts: list[_Reads]) -> _Reads:
    return _Reads(
        np.concatenate([part.strip for part in parts]),
        np.concatenate([part.readers for part in parts]),
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.halvings for part in parts]),
    )


def _laid_out(reads: _Reads, dense: Floats, rows: Indices, steps: Indices) -> _Block:
    """Return the arrays of strips, given all reads in order, the weights and the rows of each strip."""
    slots = np.array([len(sharing) for sharing in SHARINGS])
    counts = np.maximum(steps.sum(axis=1), -(-(HEADER + steps @ slots) // STRIP_ROWS))
    starts = STRIP_ROWS * (np.cumsum(counts) - counts)
    weights = np.zeros(STRIP_ROWS * int(counts.sum()), dtype=np.float32)
    offsets = np.zeros(len(weights), dtype=np.int64)
    offsets[starts[:, None] + np.arange(len(SHARINGS))] = steps

    kind, slot, number = _positions(reads, steps)
    first = (np.cumsum(steps * slots, axis=1) - steps * slots)[reads.strip, kind]
    offsets[starts[reads.strip] + HEADER + first + number * slots[kind] + slot] = reads.source * OFFSET_UNIT
    step = (np.cumsum(steps, axis=1) - steps)[reads.strip, kind] + number
    for row in range(STRIP_ROWS):
        having = np.flatnonzero(reads.readers >> row & 1)
        strip = reads.strip[having]
        values = dense[rows[strip, row], reads.source[having]]
        weights[starts[strip] + STRIP_ROWS * step[having] + row] = np.ldexp(values, -reads.halvings[having, row])
    return _Block(rows, counts, weights, offsets)


def _positions(reads: _Reads, steps: Indices) -> tuple[Indices, Indices, Indices]:
    """Return the kind of step of each read, which of its sets it is, and the number of the step among its kind."""
    number = ranges(reads.sets(len(steps)).ravel())
    kind = np.full(len(number), len(SHARINGS) - 1)
    slot = np.zeros(len(number), dtype=np.int64)
    for position, one in enumerate(SHARINGS[-1]):
        slot[reads.readers == one] = position
    for candidate, sharing in enumerate(SHARINGS[:-1]):
        for position, one in enumerate(sharing):
            members = np.flatnonzero(reads.readers == one)
            have = steps[reads.strip[members], candidate]
            inside = members[number[members] < have]
            kind[inside], slot[inside] = candidate, position
            # single rows that find no step here go on to those of the last kind
            number[members] -= np.where(number[members] < have, 0, have)
    return kind, slot, number


FAMILY = KernelFamily("strips", pack, work, WIDTHS[1:])
