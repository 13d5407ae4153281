"""Making walks: a sequence of blocks for every panel of rows, and the step of the walk that takes each entry.

Each row is placed by itself. A step can take one entry of a row, from either of its two blocks; so to place as many
entries as possible is a bipartite matching of entries with steps, and adding one step raises it by at most one. It is
kept at its maximum for the walk so far by an augmenting path: the new step takes an entry of a block whose entries all
have steps, the step that had it changes to its other block, and so on to a block with an entry that is left over.
A search that fails has seen only blocks without such a path, now and for ever; they are dead and not searched again.

The next block is the one that most rows without an entry in the present block can use, where rows with many entries
left count most, as the row with most of them decides how many gathers follow.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from redpebble.dialect.tensors import CscMatrix

BLOCK: Final = 16
"""Values of x in a block: a vector of AVX-512."""
PANEL_ROWS: Final = 32
CHUNK_STEPS: Final = 6
"""Steps that share a word of lookup places a row: walks are whole chunks long."""
FIELD_BITS: Final = 5

L2_BYTES: Final = 3 << 19
"""Packed entries up to which the kernel finds them in the L2 cache, call after call."""
GATHER_COST: Final = 3.0
"""Steps of a walk in the time of a gather for every row of a panel, where both come from L2."""
GATHER_COST_BEYOND: Final = 1.7
"""The same beyond L2, where the ratio of their bytes decides."""
BYTES_PER_ENTRY: Final = 6

URGENCY: Final = 6
"""The weight of a row is the sixth power of the share of its entries left, in those of the row with most of them."""
SUPPLY: Final = 0.02
"""The part that a block's entries left have in its value, in rows served at once."""
REPEAT: Final = 0.1
"""The part that a block has for every row with more than one of its entries left."""
MOST_CANDIDATES: Final = 128
"""Blocks compared for each step, so that the time for an entry does not grow with the inputs."""

Floats = NDArray[np.float32]
Counts = NDArray[np.int32]
Ids = NDArray[np.int64]
Words = NDArray[np.uint32]


class Rows(NamedTuple):
    """The rows of a panel: where the entries of each begin and end, [32, 2], in the inputs and weights of the matrix."""

    spans: Ids
    inputs: Ids
    weights: Floats


class Placing(NamedTuple):
    """A panel while steps are added to its walk.

    remaining [blocks, 32] and left [32] count the entries without a step; taken [32, steps] is the block that a step
    serves, or -1; dead [32, blocks]; latest [blocks] is a block's last position in the walk so far, earlier [steps + 1]
    its position before each position, or -1. reached_by [blocks] and queue [blocks] are room for a search, seen_in
    [blocks + 1] says which search saw a block last, and at the end how many there were.
    """

    walk: Ids
    remaining: Counts
    left: Counts
    taken: Counts
    dead: NDArray[np.bool_]
    latest: Ids
    earlier: Ids
    reached_by: Ids
    queue: Ids
    seen_in: Ids


def pack_walks(matrix: CscMatrix, bias: Floats) -> tuple[Words, Words, Words]:
    """Return the panels' [chunks, gathers], their walks as byte offsets in x one after the other, and their words.

    A walk has one block more than steps. The words of a panel are the biases and the numbers of its rows (-1 for none);
    for each chunk the lookup places, then the weights, step by step; for each gather the inputs, then the weights.
    """
    inputs, outputs = matrix.shape
    order = np.argsort(-np.diff(matrix.pointers), kind="stable")
    gather_cost = GATHER_COST if BYTES_PER_ENTRY * len(matrix.values) <= L2_BYTES else GATHER_COST_BEYOND
    sizes: list[tuple[int, int]] = []
    walks: list[Ids] = []
    words: list[Words] = []
    for first in range(0, outputs, PANEL_ROWS):
        members = order[first : first + PANEL_ROWS]
        spans = np.zeros((PANEL_ROWS, 2), dtype=np.int64)
        spans[: len(members)] = np.stack([matrix.pointers[members], matrix.pointers[members + 1]], axis=1)
        rows = Rows(spans, matrix.rows, matrix.values)
        counts = _block_counts(rows, -(-inputs // BLOCK))
        walk = _cheapest_walk(counts, gather_cost)
        body, gathers = _fill(rows, walk, _taken(counts, walk), len(counts))
        sizes.append(((len(walk) - 1) // CHUNK_STEPS, gathers))
        walks.append(walk)
        words += [_head(members, bias), body]
    offsets = np.concatenate(walks) * (BLOCK * np.dtype(np.float32).itemsize)
    return np.array(sizes, dtype=np.uint32), offsets.astype(np.uint32), np.concatenate(words)


def _head(members: Ids, bias: Floats) -> Words:
    head = np.full((2, PANEL_ROWS), -1, dtype=np.int32)
    head[0] = 0
    head[0, : len(members)] = bias[members].view(np.int32)
    head[1, : len(members)] = members
    return head.ravel().view(np.uint32)


@njit(cache=True, nogil=True)
def _block_counts(rows: Rows, blocks: int) -> Counts:
    """Return the entries of each row in each block, [blocks, 32]."""
    counts = np.zeros((blocks, PANEL_ROWS), dtype=np.int32)
    for row in range(PANEL_ROWS):
        for entry in range(rows.spans[row, 0], rows.spans[row, 1]):
            counts[rows.inputs[entry] // BLOCK, row] += 1
    return counts


@njit(cache=True, nogil=True)
def _cheapest_walk(counts: Counts, gather_cost: float) -> Ids:
    """Return the walk of whole chunks with the least steps and gathers, by their cost."""
    cheapest = gather_cost * counts.sum(axis=0).max()
    placing = _new_placing(counts, int(cheapest) + 1)
    _extend(placing, 0, _next_block(placing, -1, 0))
    steps = 0
    # a walk that alone costs more than another one with its gathers need not be made longer
    for step in range(int(cheapest) + 1):
        if step >= cheapest:
            break
        _extend(placing, step + 1, _next_block(placing, placing.walk[step], step))
        _place(placing, step)
        if (step + 1) % CHUNK_STEPS == 0:
            most = placing.left.max()
            if step + 1 + gather_cost * most < cheapest:
                cheapest = step + 1 + gather_cost * most
                steps = step + 1
    return placing.walk[: steps + 1].copy()


@njit(cache=True, nogil=True)
def _taken(counts: Counts, walk: Ids) -> Counts:
    """Return the block that each row takes an entry of in each step of the walk, [32, steps]; -1 for none."""
    placing = _new_placing(counts, len(walk) - 1)
    _extend(placing, 0, walk[0])
    for step in range(len(walk) - 1):
        _extend(placing, step + 1, walk[step + 1])
        _place(placing, step)
    return placing.taken


@njit(cache=True, nogil=True)
def _new_placing(counts: Counts, steps: int) -> Placing:
    blocks = len(counts)
    return Placing(
        np.zeros(steps + 1, dtype=np.int64),
        counts.copy(),
        counts.sum(axis=0).astype(np.int32),
        np.full((PANEL_ROWS, steps), -1, dtype=np.int32),
        np.zeros((PANEL_ROWS, blocks), dtype=np.bool_),
        np.full(blocks, -1, dtype=np.int64),
        np.full(steps + 1, -1, dtype=np.int64),
        np.zeros(blocks, dtype=np.int64),
        np.zeros(blocks, dtype=np.int64),
        np.zeros(blocks + 1, dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def _extend(placing: Placing, position: int, block: int) -> None:
    """Let the walk be at `block` at `position`."""
    placing.walk[position] = block
    placing.earlier[position] = placing.latest[block]
    placing.latest[block] = position


@njit(cache=True, nogil=True, fastmath=True)
def _next_block(placing: Placing, present: int, step: int) -> int:
    """Return the block to go to from `present` (-1 at the start): the one of most value to the rows."""
    blocks = len(placing.remaining)
    most = max(placing.left.max(), 1)
    urgency = np.empty(PANEL_ROWS, dtype=np.float32)
    idle = np.empty(PANEL_ROWS, dtype=np.float32)
    for row in range(PANEL_ROWS):
        share = np.float32(placing.left[row]) / np.float32(most)
        urgency[row] = share * share * share * share * share * share
        idle[row] = np.float32(0) if present >= 0 and placing.remaining[present, row] > 0 else urgency[row]
    best, best_value = (present + 1) % blocks, np.float32(0)
    for candidate in range(blocks):
        if candidate >= MOST_CANDIDATES and best_value > 0:
            break
        block = (step * MOST_CANDIDATES + candidate) % blocks
        value = np.float32(0)
        for row in range(PANEL_ROWS):
            count = placing.remaining[block, row]
            value += np.float32(SUPPLY) * urgency[row] * np.float32(count)
            value += idle[row] if count > 0 else np.float32(0)
            value += np.float32(REPEAT) * urgency[row] if count > 1 else np.float32(0)
        if value > best_value and block != present:
            best, best_value = block, value
    return best


@njit(cache=True, nogil=True)
def _place(placing: Placing, step: int) -> None:
    """Give `step` an entry of every row that has one for it."""
    here, there = placing.walk[step], placing.walk[step + 1]
    for row in range(PANEL_ROWS):
        if placing.left[row] == 0:
            continue
        more_here = placing.remaining[here, row] >= placing.remaining[there, row]
        block = here if more_here else there
        if placing.remaining[block, row] == 0:
            block = _make_room(placing, row, step)
        else:
            placing.taken[row, step] = block
        if block >= 0:
            placing.remaining[block, row] -= 1
            placing.left[row] -= 1


@njit(cache=True, nogil=True)
def _make_room(placing: Placing, row: int, step: int) -> int:
    """Let steps change their blocks so that `step` takes an entry too; return the block that gave it, or -1."""
    taken, dead = placing.taken[row], placing.dead[row]
    queue, seen_in, reached_by = placing.queue, placing.seen_in, placing.reached_by
    seen_in[-1] += 1
    search, filled, tried = seen_in[-1], 0, 0
    for block in (placing.walk[step], placing.walk[step + 1]):
        if not dead[block] and seen_in[block] != search:
            seen_in[block], reached_by[block], queue[filled] = search, step, block
            filled += 1
    while tried < filled:
        block = queue[tried]
        tried += 1
        position = placing.latest[block]
        while position >= 0:
            for near in range(max(position - 1, 0), min(position + 1, step)):
                other = placing.walk[near] + placing.walk[near + 1] - block
                if taken[near] != block or dead[other] or seen_in[other] == search:
                    continue
                seen_in[other], reached_by[other], queue[filled] = search, near, other
                filled += 1
                if placing.remaining[other, row] > 0:
                    _change_blocks(taken, reached_by, other, step)
                    return other
            position = placing.earlier[position]
    for block in queue[:filled]:
        dead[block] = True
    return -1


@njit(cache=True, nogil=True)
def _change_blocks(taken: Counts, reached_by: Ids, block: int, last: int) -> None:
    """Let the step by which `block` was reached take it, and so on with the block it had, up to step `last`."""
    step = -1
    while step != last:
        step = reached_by[block]
        before = taken[step]
        taken[step] = block
        block = before


@njit(cache=True, nogil=True)
def _fill(rows: Rows, walk: Ids, taken: Counts, blocks: int) -> tuple[Words, int]:
    """Return the words of a panel after its head, and the number of its gathers."""
    chunks, gathers = (len(walk) - 1) // CHUNK_STEPS, 0
    for row in range(PANEL_ROWS):
        gathers = max(gathers, rows.spans[row, 1] - rows.spans[row, 0] - (taken[row] >= 0).sum())
    words = np.zeros((chunks * (1 + CHUNK_STEPS) + 2 * gathers, PANEL_ROWS), dtype=np.uint32)
    values = words.view(np.float32)
    following = np.zeros(blocks, dtype=np.int64)
    for row in range(PANEL_ROWS):
        start, stop = rows.spans[row]
        for entry in range(stop - 1, start - 1, -1):
            following[rows.inputs[entry] // BLOCK] = entry
        for step in range(chunks * CHUNK_STEPS):
            line = step // CHUNK_STEPS * (1 + CHUNK_STEPS)
            block = taken[row, step]
            # an unused lane looks at the first value of a block, which is never one behind the end of x
            place = 0
            if block >= 0:
                entry = following[block]
                following[block] += 1
                place = rows.inputs[entry] - block * BLOCK
                values[line + 1 + step % CHUNK_STEPS, row] = rows.weights[entry]
            register = (step if block < 0 or walk[step] == block else step + 1) & 1
            words[line, row] |= np.uint32((register * BLOCK + place) << (FIELD_BITS * (step % CHUNK_STEPS)))
        line = chunks * (1 + CHUNK_STEPS)
        for entry in range(start, stop):
            if entry >= following[rows.inputs[entry] // BLOCK]:
                words[line, row] = rows.inputs[entry]
                values[line + 1, row] = rows.weights[entry]
                line += 2
    return words.ravel(), gathers
