"""Format of quantized weights for many rows: quads of neighbouring inputs, four weights each, zeros among them.

Inputs lie as bytes [inputs / 4, columns, 4], so that a quad of a column is a word, and a line of words meets a word of
weights. For each block of quads, whose lines fit the first-level cache, outputs come in pairs, those with most quads
there first: both have as many, the shorter one padded with weights of 0.
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


class QuadBlocks(NamedTuple):
    """Packed weights of a layer."""

    borders: NDArray[np.int64]
    """Number of blocks, the first pair of each, and the number of pairs."""
    records: NDArray[np.int32]
    """[pairs, 3]: the two outputs, and the quads of each; an output behind the last one is none."""
    offsets: NDArray[np.uint16]
    """[quads, 2]: which quad of the block each output of a pair takes."""
    weights: NDArray[np.int8]
    """[quads, 2, 4]"""


class _Quads(NamedTuple):
    """Touched quads, sorted by block, output and place: the first two of these as one number, and their weights."""

    groups: Indices
    places: Indices
    weights: NDArray[np.int8]


def quad_count(weight: CscMatrix) -> int:
    """Return the quads in which an output has a weight, of all outputs."""
    return len(np.unique(weight.columns * weight.shape[0] + weight.rows // QUAD))


def block_count(inputs: int) -> int:
    """Return the number of blocks of so many inputs: one at least."""
    return max(1, -(-inputs // (QUAD * BLOCK_QUADS)))


def block_quads(inputs: int, blocks: int) -> int:
    """Return the quads of each of so many blocks."""
    return max(1, -(-inputs // (QUAD * blocks)))


def pack(weight: CscMatrix, blocks: int) -> QuadBlocks:
    """Return so many blocks of a weight [inputs, outputs] of integers up to 255."""
    outputs = weight.shape[1]
    quads = _quads(weight, block_quads(weight.shape[0], blocks))
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
    offsets = np.zeros(PAIR * total, dtype=np.uint16)
    weights = np.zeros((PAIR * total, QUAD), dtype=np.int8)
    for source, target in streams:
        offsets[target], weights[target] = quads.places[source], quads.weights[source]
    return QuadBlocks(
        np.array([blocks, *borders], dtype=np.int64),
        np.concatenate(records).astype(np.int32).reshape(-1, PAIR + 1),
        offsets.reshape(-1, PAIR),
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
