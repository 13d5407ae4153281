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

GATHER_COST: Final = 3.5
"""Steps of a walk in the time of a gather for every row of a panel, where both come from L2."""
GATHER_COST_BEYOND_L2: Final = 5.0
"""The same without zeros and beyond L2, where the bytes beside the weights decide: 29 of a step, 132 of a gather."""

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
    """The rows of a panel: where the entries of each begin and end, [32, 2], in the matrix's inputs and weights."""

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
    urgency: Floats
    reached_by: Ids
    queue: Ids
    seen_in: Ids


class Walks(NamedTuple):
    """Panels of 32 rows, packed.

    sizes u32 [panels, 2]: chunks of steps, and gathers. walks u32: blocks as byte offsets in x, one more than steps.
    words u32 [lines, 32]: a panel's biases, the numbers of its rows (-1 for none), a line of lookup places for each
    chunk, a line of inputs for each gather. weights f32 [lines, 32]: a line for each step, then one for each gather.
    """

    sizes: Words
    walks: Words
    words: Words
    weights: Floats


class CompactWalks(NamedTuple):
    """The same, with the weights that are not zero alone; masks u32 say for each line which rows have one."""

    sizes: Words
    walks: Words
    words: Words
    weights: Floats
    masks: Words


def pack_walks(matrix: CscMatrix, bias: Floats, *, beyond_l2: bool) -> Walks:
    """Return the walks of all panels, rows with most entries first, made for weights in the L2 cache or beyond it."""
    gather_cost = GATHER_COST_BEYOND_L2 if beyond_l2 else GATHER_COST
    inputs, outputs = matrix.shape
    blocks = max(-(-inputs // BLOCK), 1)
    order = np.argsort(-np.diff(matrix.pointers), kind="stable")
    sizes: list[tuple[int, int]] = []
    walks: list[Ids] = []
    words: list[Words] = []
    weights: list[Floats] = []
    # without outputs one panel without rows, as there are no arrays to join otherwise
    for first in range(0, max(outputs, 1), PANEL_ROWS):
        members = order[first : first + PANEL_ROWS]
        rows = _rows_of(matrix, members)
        placing = _placing(_block_counts(rows, blocks), gather_cost)
        own_words, own_weights = _entries(rows, placing)
        steps = len(placing.walk) - 1
        sizes.append((steps // CHUNK_STEPS, len(own_weights) - steps))
        walks.append(placing.walk * (BLOCK * own_weights.itemsize))
        words += [_head(members, bias), own_words]
        weights.append(own_weights)
    offsets = np.concatenate(walks).astype(np.uint32)
    return Walks(np.array(sizes, dtype=np.uint32), offsets, np.concatenate(words), np.concatenate(weights))


def compact_walks(walks: Walks) -> CompactWalks:
    """Return the walks without the zeros among their weights."""
    present = walks.weights.view(np.uint32) != 0
    masks = np.packbits(present, axis=1, bitorder="little").view("<u4")
    return CompactWalks(*walks[:3], walks.weights[present], masks)


def _head(members: Ids, bias: Floats) -> Words:
    """Return the biases and the numbers of a panel's rows."""
    head = np.zeros((2, PANEL_ROWS), dtype=np.int32)
    head[0, : len(members)] = bias[members].view(np.int32)
    head[1] = -1
    head[1, : len(members)] = members
    return head.view(np.uint32)


def _rows_of(matrix: CscMatrix, members: Ids) -> Rows:
    spans = np.zeros((PANEL_ROWS, 2), dtype=np.int64)
    spans[: len(members), 0] = matrix.pointers[members]
    spans[: len(members), 1] = matrix.pointers[members + 1]
    return Rows(spans, matrix.rows, matrix.values)


def _block_counts(rows: Rows, blocks: int) -> Counts:
    """Return the entries of each row in each block, [blocks, 32]."""
    places = [rows.inputs[start:stop] // BLOCK * PANEL_ROWS + row for row, (start, stop) in enumerate(rows.spans)]
    counts = np.bincount(np.concatenate(places), minlength=blocks * PANEL_ROWS)
    return counts.reshape(blocks, PANEL_ROWS).astype(np.int32)


def _placing(counts: Counts, gather_cost: float) -> Placing:
    """Return the cheapest walk of whole chunks, and where its entries go."""
    longest = _new_placing(counts, int(gather_cost * counts.sum(axis=0).max()) + 1)
    steps = _find_walk(longest, gather_cost)
    placing = _new_placing(counts, steps)
    placing.walk[:] = longest.walk[: steps + 1]
    _follow_walk(placing)
    return placing


def _new_placing(counts: Counts, steps: int) -> Placing:
    blocks = len(counts)
    return Placing(
        walk=np.zeros(steps + 1, dtype=np.int64),
        remaining=counts.copy(),
        left=counts.sum(axis=0).astype(np.int32),
        taken=np.full((PANEL_ROWS, steps), -1, dtype=np.int32),
        dead=np.zeros((PANEL_ROWS, blocks), dtype=np.bool_),
        latest=np.full(blocks, -1, dtype=np.int64),
        earlier=np.full(steps + 1, -1, dtype=np.int64),
        urgency=np.zeros((2, PANEL_ROWS), dtype=np.float32),
        reached_by=np.zeros(blocks, dtype=np.int64),
        queue=np.zeros(blocks, dtype=np.int64),
        seen_in=np.zeros(blocks + 1, dtype=np.int64),
    )


def _entries(rows: Rows, placing: Placing) -> tuple[Words, Floats]:
    """Return the lines of words of a panel after its head, and its lines of weights."""
    steps, gathers = len(placing.walk) - 1, int(placing.left.max())
    words = np.zeros((steps // CHUNK_STEPS + gathers, PANEL_ROWS), dtype=np.uint32)
    weights = np.zeros((steps + gathers, PANEL_ROWS), dtype=np.float32)
    # the search is over, and its room holds the next entry of each block
    _fill(rows, placing, words, weights)
    return words, weights


@njit(cache=True, nogil=True, _nrt=False)
def _find_walk(placing: Placing, gather_cost: float) -> int:
    """Choose blocks step by step; return the steps of the cheapest walk of whole chunks, counting its gathers.

    A walk that alone costs more than a shorter one with its gathers need not be made longer.
    """
    _extend(placing, 0, _next_block(placing, -1, 0))
    cheapest, steps = gather_cost * _most_left(placing), 0
    for step in range(placing.taken.shape[1]):
        if step >= cheapest:
            break
        _extend(placing, step + 1, _next_block(placing, placing.walk[step], step))
        _place(placing, step)
        cost = step + 1 + gather_cost * _most_left(placing)
        if (step + 1) % CHUNK_STEPS == 0 and cost < cheapest:
            cheapest, steps = cost, step + 1
    return steps


@njit(cache=True, nogil=True, _nrt=False)
def _follow_walk(placing: Placing) -> None:
    """Place the entries on the walk that is there already."""
    _extend(placing, 0, placing.walk[0])
    for step in range(placing.taken.shape[1]):
        _extend(placing, step + 1, placing.walk[step + 1])
        _place(placing, step)


@njit(cache=True, nogil=True, _nrt=False)
def _most_left(placing: Placing) -> int:
    """Return the entries without a step of the row that has most of them."""
    most = 0
    for row in range(PANEL_ROWS):
        most = max(most, placing.left[row])
    return most


@njit(cache=True, nogil=True, _nrt=False)
def _extend(placing: Placing, position: int, block: int) -> None:
    """Let the walk be at `block` at `position`."""
    placing.walk[position] = block
    placing.earlier[position] = placing.latest[block]
    placing.latest[block] = position


@njit(cache=True, nogil=True, fastmath=True, _nrt=False)
def _next_block(placing: Placing, present: int, step: int) -> int:
    """Return the block to go to from `present` (-1 at the start): the one of most value to the rows."""
    blocks = len(placing.remaining)
    most = max(_most_left(placing), 1)
    urgency, idle = placing.urgency
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


@njit(cache=True, nogil=True, _nrt=False)
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


@njit(cache=True, nogil=True, _nrt=False)
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


@njit(cache=True, nogil=True, _nrt=False)
def _change_blocks(taken: Counts, reached_by: Ids, block: int, last: int) -> None:
    """Let the step by which `block` was reached take it, and so on with the block it had, up to step `last`."""
    step = -1
    while step != last:
        step = int(reached_by[block])
        before = int(taken[step])
        taken[step] = block
        block = before


@njit(cache=True, nogil=True, _nrt=False)
def _fill(rows: Rows, placing: Placing, words: Words, weights: Floats) -> None:
    """Write the lookup places and the weights of all steps, then the inputs and the weights of the gathers."""
    walk, following, steps = placing.walk, placing.queue, placing.taken.shape[1]
    for row in range(PANEL_ROWS):
        start, stop = rows.spans[row, 0], rows.spans[row, 1]
        for entry in range(stop - 1, start - 1, -1):
            following[rows.inputs[entry] // BLOCK] = entry
        for step in range(steps):
            block = placing.taken[row, step]
            # an unused lane looks at the first value of a block, which is never one behind the end of x
            place = 0
            if block >= 0:
                entry = following[block]
                following[block] += 1
                place = rows.inputs[entry] - block * BLOCK
                weights[step, row] = rows.weights[entry]
            register = (step if block < 0 or walk[step] == block else step + 1) & 1
            field = (register * BLOCK + place) << (FIELD_BITS * (step % CHUNK_STEPS))
            words[step // CHUNK_STEPS, row] |= np.uint32(field)
        line = steps
        for entry in range(start, stop):
            if entry >= following[rows.inputs[entry] // BLOCK]:
                words[line - steps + steps // CHUNK_STEPS, row] = rows.inputs[entry]
                weights[line, row] = rows.weights[entry]
                line += 1
