"""Format of quantized weights for many rows: quads of inputs, four weights each.

Where weights come in blocks, quads are of neighbouring inputs, zeros among them. Inputs lie as bytes
[inputs / 4, columns, 4], so that a quad of a column is a word, and a line of words meets a word of weights. For any
other mask an output's inputs are taken four by four, wherever they are. Inputs lie as bytes [inputs, columns], and four
lines become a line of words when they meet.

For each block of inputs, whose lines fit the first-level cache, outputs come in pairs, those with most quads there
first: both have as many, the shorter one padded with weights of 0.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.kernels.byte_lookup import within_bytes
from redpebble.sparse.csr import CscMatrix, Indices

COLUMNS: Final = 64
"""Rows of the batch that are done together."""

LEAST_COLUMNS: Final = 33
"""Rows from which they are: fewer would leave half of the columns empty."""

QUAD: Final = 4

BLOCK_QUADS: Final = 96
"""Quads of a block: their lines take three quarters of a first-level cache of 32 KiB."""

PAIR: Final = 2

OFFSET_BYTES: Final = 8
"""Bytes in which the lines of scattered inputs are counted: what an address of x86 multiplies by."""

FARTHEST: Final = np.iinfo(np.uint16).max * OFFSET_BYTES // COLUMNS
"""Inputs of a block at most, by these offsets."""


class QuadBlocks(NamedTuple):
    """Packed weights of a layer."""

    borders: NDArray[np.int64]
    """Number of blocks, the first pair of each, and the number of pairs."""
    records: NDArray[np.int32]
    """[pairs, 3]: the two outputs, and the quads of each; an output behind the last one is none."""
    offsets: NDArray[np.uint16]
    """[quads, 2]: which quad of the block each output of a pair takes; [quads, 2, 4]: where the lines of inputs are."""
    weights: NDArray[np.int8]
    """[quads, 2, 4]"""


class _Quads(NamedTuple):
    """Quads, sorted by block, output and place: the first two of these as one number, and their weights."""

    groups: Indices
    places: Indices
    """[quads] of neighbours, [quads, 4] of scattered inputs."""
    weights: NDArray[np.int8]


def quad_count(weight: CscMatrix) -> int:
    """Return the quads in which an output has a weight, of all outputs."""
    return len(np.unique(weight.columns * weight.shape[0] + weight.rows // QUAD))


def scattered_count(weight: CscMatrix) -> int:
    """Return the quads of all outputs where those of an output are of any inputs."""
    return int(np.sum(-(-np.diff(weight.pointers) // QUAD)))


def block_count(inputs: int) -> int:
    """Return the number of blocks of so many inputs: one at least."""
    return max(1, -(-inputs // (QUAD * BLOCK_QUADS)))


def block_quads(inputs: int, blocks: int) -> int:
    """Return the quads of each of so many blocks."""
    return max(1, -(-inputs // (QUAD * blocks)))


def pack(weight: CscMatrix, blocks: int, *, scattered: bool = False) -> QuadBlocks:
    """Return so many blocks of a weight [inputs, outputs] of integers up to 255, quads of neighbours or scattered."""
    outputs = weight.shape[1]
    quads = (_scattered if scattered else _quads)(weight, block_quads(weight.shape[0], blocks))
    counts = np.bincount(quads.groups, minlength=blocks * outputs).reshape(blocks, outputs)
    firsts = np.cumsum(counts) - counts.ravel()
    borders, records, streams, total = [0], list[Indices](), list[tuple[Indices, Indices]](), 0
    for block in range(blocks):
        order = np.argsort(-counts[block], kind="stable")
        # in the first block every output begins with its bias
        order = order if block == 0 else order[: np.count_nonzero(counts[block])]
        order = np.append(order, np.full(len(order) % PAIR, outputs))
        lengths = np.append(counts[block], 0)[order].reshape(-1, PAIR)
        most = lengths.max(axis=1, initial=0)
        starts = total + np.cumsum(most) - most
        records.append(np.column_stack([order.reshape(-1, PAIR), most]))
        flat = lengths.ravel()
        rank: Indices = np.arange(int(flat.sum())) - np.repeat(np.cumsum(flat) - flat, flat)
        source = np.repeat(np.append(firsts[block * outputs : (block + 1) * outputs], 0)[order], flat) + rank
        target = PAIR * (np.repeat(np.repeat(starts, PAIR), flat) + rank) + np.repeat(np.arange(len(flat)) % PAIR, flat)
        streams.append((source, target))
        total += int(most.sum())
        borders.append(borders[-1] + len(most))
    offsets = np.zeros((PAIR * total, *quads.places.shape[1:]), dtype=np.uint16)
    weights = np.zeros((PAIR * total, QUAD), dtype=np.int8)
    for source, target in streams:
        offsets[target], weights[target] = quads.places[source], quads.weights[source]
    return QuadBlocks(
        np.array([blocks, *borders], dtype=np.int64),
        np.concatenate(records).astype(np.int32).reshape(-1, PAIR + 1),
        offsets.reshape(-1, PAIR, *quads.places.shape[1:]),
        weights.reshape(-1, PAIR, QUAD),
    )


def _quads(weight: CscMatrix, size: int) -> _Quads:
    outputs = weight.shape[1]
    entries = within_bytes(weight.columns, weight.rows, np.rint(weight.values).astype(np.int64))
    quad = entries.inputs // QUAD
    group, place = quad // size * outputs + entries.owners, quad % size
    # what is left of a weight that is too large for a byte is one more quad
    keys = (group * size + place) * (int(entries.parts.max(initial=0)) + 1) + entries.parts
    known, index = np.unique(keys, return_inverse=True)
    weights = np.zeros((len(known), QUAD), dtype=np.int8)
    weights[index, entries.inputs % QUAD] = entries.values
    combined = known // (int(entries.parts.max(initial=0)) + 1)
    return _Quads(combined // size, combined % size, weights)


def _scattered(weight: CscMatrix, size: int) -> _Quads:
    """Return the inputs of an output and block of `size` quads four by four, the last ones padded."""
    outputs, inputs = weight.shape[1], QUAD * size
    entries = within_bytes(weight.columns, weight.rows, np.rint(weight.values).astype(np.int64))
    group = entries.inputs // inputs * outputs + entries.owners
    order = np.lexsort((entries.inputs, group))
    group, place, value = group[order], entries.inputs[order] % inputs, entries.values[order]
    known, first, counts = np.unique(group, return_index=True, return_counts=True)
    rank = np.arange(len(group)) - np.repeat(first, counts)
    quads = -(-counts // QUAD)
    quad = np.repeat(np.cumsum(quads) - quads, counts) + rank // QUAD
    places = np.zeros((int(quads.sum()), QUAD), dtype=np.int64)
    weights = np.zeros((len(places), QUAD), dtype=np.int8)
    places[quad, rank % QUAD], weights[quad, rank % QUAD] = place * (COLUMNS // OFFSET_BYTES), value
    return _Quads(np.repeat(known, quads), places, weights)
