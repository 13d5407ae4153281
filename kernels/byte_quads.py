"""Format of quantized weights for many rows: quads of inputs, four weights each.

Where weights come in blocks, quads are of neighbouring inputs, zeros among them. Inputs lie as bytes
[inputs / 4, columns, 4], so that a quad of a column is a word, and a line of words meets a word of weights. For any
other mask an output's inputs are taken four by four, wherever they are. Inputs lie as bytes [inputs, columns], and four
lines become a line of words when they meet; two or four outputs that share their inputs meet it together.

For each block of inputs, whose lines fit the first-level cache, outputs come in pairs, those with most quads there
first: both have as many, the shorter one padded with weights of 0. Outputs that share inputs are such a record alone.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sparse.csr import CscMatrix, Indices
from .byte_lookup import within_bytes

COLUMNS: Final = 64
"""Rows of the batch that are done together."""

LEAST_COLUMNS: Final = 33
"""Rows from which they are: fewer would leave half of the columns empty."""

QUAD: Final = 4

BLOCK_QUADS: Final = 96
"""Quads of a block: their lines take three quarters of a first-level cache of 32 KiB."""

PAIR: Final = 2
"""Outputs that are accumulated in turn, so that two chains of sums are in flight."""

OFFSET_BYTES: Final = 8
"""Bytes in which the lines of scattered inputs are counted: what an address of x86 multiplies by."""

FARTHEST: Final = np.iinfo(np.uint16).max * OFFSET_BYTES // COLUMNS
"""Inputs of a block at most, by these offsets."""


class QuadForm(NamedTuple):
    """Rule by which inputs make a quad."""

    scattered: bool
    """Any four of an output, not neighbours alone."""
    share: int = 1
    """Outputs that take the same inputs."""

    @property
    def turns(self) -> int:
        """Quads that are met in turn by different outputs."""
        return PAIR if self.share == 1 else 1

    @property
    def outputs(self) -> int:
        return self.turns * self.share


class QuadBlocks(NamedTuple):
    """Packed weights of a layer."""

    borders: NDArray[np.int64]
    """Number of blocks, the first record of each, and the number of records."""
    records: NDArray[np.int32]
    """[records, outputs + 1]: outputs, and the quads of each; an output behind the last one is none."""
    offsets: NDArray[np.uint16]
    """[quads, turns]: which quad of the block each turn takes; [quads, turns, 4]: where the lines of inputs are."""
    weights: NDArray[np.int8]
    """[quads, outputs, 4]"""


class _Quads(NamedTuple):
    """Quads, sorted by block, outputs that share them, and place: the first two of these as one number, and weights."""

    groups: Indices
    places: Indices
    """[quads] of neighbours, [quads, 4] of scattered inputs."""
    weights: NDArray[np.int8]
    """[quads, share, 4]"""


def quad_count(weight: CscMatrix) -> int:
    """Return the quads in which an output has a weight, of all outputs."""
    return len(np.unique(weight.columns * weight.shape[0] + weight.rows // QUAD))


def scattered_count(weight: CscMatrix) -> int:
    """Return the quads of all outputs where those of an output are of any inputs."""
    return int(np.sum(-(-np.diff(weight.pointers) // QUAD)))


def shared_count(weight: CscMatrix, share: int) -> int:
    """Return the quads of so many outputs at a time, of any inputs that one of them has."""
    ranks = np.argsort(_alike(weight))
    touched = np.zeros((-(-weight.shape[1] // share), weight.shape[0]), dtype=np.bool_)
    touched[ranks[weight.columns] // share, weight.rows] = True
    return int(np.sum(-(-np.count_nonzero(touched, axis=1) // QUAD)))


def _alike(weight: CscMatrix) -> Indices:
    """Return the outputs in order, those with equal inputs behind the first one of them."""
    known: dict[bytes, int] = {}
    firsts = [known.setdefault(weight.pattern.of(output).tobytes(), output) for output in range(weight.shape[1])]
    return np.argsort(np.array(firsts, dtype=np.int64), kind="stable")


def block_count(inputs: int) -> int:
    """Return the number of blocks of so many inputs: one at least."""
    return max(1, -(-inputs // (QUAD * BLOCK_QUADS)))


def block_quads(inputs: int, blocks: int) -> int:
    """Return the quads of each of so many blocks."""
    return max(1, -(-inputs // (QUAD * blocks)))


def pack(weight: CscMatrix, blocks: int, form: QuadForm) -> QuadBlocks:
    """Return so many blocks of a weight [inputs, outputs] of integers up to 255."""
    outputs, share = weight.shape[1], form.share
    order = _alike(weight) if share > 1 else np.arange(outputs)
    groups = -(-outputs // share)
    members = np.append(order, np.full((groups + 1) * share - outputs, outputs)).reshape(-1, share)
    size = block_quads(weight.shape[0], blocks)
    quads = _scattered(weight, size, np.argsort(order), share) if form.scattered else _neighbours(weight, size)
    counts = np.bincount(quads.groups, minlength=blocks * groups).reshape(blocks, groups)
    firsts = np.cumsum(counts) - counts.ravel()
    borders, records, streams, total = [0], list[Indices](), list[tuple[Indices, Indices]](), 0
    for block in range(blocks):
        order = np.argsort(-counts[block], kind="stable")
        # every output begins in the first block, and ends in the last
        order = order if block in (0, blocks - 1) else order[: np.count_nonzero(counts[block])]
        order = np.append(order, np.full(len(order) % form.turns, groups))
        lengths = np.append(counts[block], 0)[order].reshape(-1, form.turns)
        most = lengths.max(axis=1, initial=0)
        starts = total + np.cumsum(most) - most
        records.append(np.column_stack([members[order].reshape(-1, form.outputs), most]))
        flat = lengths.ravel()
        rank: Indices = np.arange(int(flat.sum())) - np.repeat(np.cumsum(flat) - flat, flat)
        source = np.repeat(np.append(firsts[block * groups : (block + 1) * groups], 0)[order], flat) + rank
        turn = np.repeat(np.arange(len(flat)) % form.turns, flat)
        streams.append((source, form.turns * (np.repeat(np.repeat(starts, form.turns), flat) + rank) + turn))
        total += int(most.sum())
        borders.append(borders[-1] + len(most))
    offsets = np.zeros((form.turns * total, *quads.places.shape[1:]), dtype=np.uint16)
    weights = np.zeros((form.turns * total, share, QUAD), dtype=np.int8)
    for source, target in streams:
        offsets[target], weights[target] = quads.places[source], quads.weights[source]
    return QuadBlocks(
        np.array([blocks, *borders], dtype=np.int64),
        np.concatenate(records).astype(np.int32).reshape(-1, form.outputs + 1),
        offsets.reshape(-1, form.turns, *quads.places.shape[1:]),
        weights.reshape(-1, form.outputs, QUAD),
    )


def _neighbours(weight: CscMatrix, size: int) -> _Quads:
    outputs = weight.shape[1]
    entries = within_bytes(weight.columns, weight.rows, np.rint(weight.values).astype(np.int64))
    quad = entries.inputs // QUAD
    group, place = quad // size * outputs + entries.owners, quad % size
    # what is left of a weight that is too large for a byte is one more quad
    keys = (group * size + place) * (int(entries.parts.max(initial=0)) + 1) + entries.parts
    known, index = np.unique(keys, return_inverse=True)
    weights = np.zeros((len(known), 1, QUAD), dtype=np.int8)
    weights[index, 0, entries.inputs % QUAD] = entries.values
    combined = known // (int(entries.parts.max(initial=0)) + 1)
    return _Quads(combined // size, combined % size, weights)


def _scattered(weight: CscMatrix, size: int, ranks: Indices, share: int) -> _Quads:
    """Return the inputs of outputs that share them, by their ranks, and of a block of `size` quads four by four."""
    groups, inputs = -(-weight.shape[1] // share), QUAD * size
    entries = within_bytes(weight.columns, weight.rows, np.rint(weight.values).astype(np.int64))
    rank, parts = ranks[entries.owners], int(entries.parts.max(initial=0)) + 1
    group = entries.inputs // inputs * groups + rank // share
    slots, index = np.unique((group * inputs + entries.inputs % inputs) * parts + entries.parts, return_inverse=True)
    place = slots // parts % inputs
    known, first, counts = np.unique(slots // (parts * inputs), return_index=True, return_counts=True)
    turn = np.arange(len(slots)) - np.repeat(first, counts)
    quads = -(-counts // QUAD)
    quad = np.repeat(np.cumsum(quads) - quads, counts) + turn // QUAD
    places = np.zeros((int(quads.sum()), QUAD), dtype=np.int64)
    places[quad, turn % QUAD] = place * (COLUMNS // OFFSET_BYTES)
    weights = np.zeros((len(places), share, QUAD), dtype=np.int8)
    weights[quad[index], rank % share, (turn % QUAD)[index]] = entries.values
    return _Quads(np.repeat(known, quads), places, weights)
