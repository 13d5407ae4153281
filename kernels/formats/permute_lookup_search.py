"""Finding the sequence of a panel of rows: the order of its blocks, and the step of each entry.

Each row is placed by itself. A step can take one entry of a row, from any of the blocks that it holds; so to place as
many entries as possible is a bipartite matching of entries with steps, and adding one step raises it by at most one. It
is kept at its maximum for the sequence so far by an augmenting path: the new step takes an entry that has a step, that
step takes another entry of one of its blocks, and so on to an entry that is left over. A search that fails has seen
only steps without such a path, now and for ever; they are dead and not searched again.

The next block is the one that most rows without an entry in the present block can use, where rows with many entries
left count most, as the row with most of them decides how many gathers follow.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...foundation.compiled_loops import compiled_loop

BLOCK: Final = 16
"""Values of x in a block: a vector of AVX-512."""
PANEL_ROWS: Final = 32
CHUNK_STEPS: Final = 6
"""Steps that share a word of lookup fields a row: sequences are whole chunks long."""

SUPPLY: Final = 0.02
"""The part that a block's entries left have in its value, in rows served at once."""
REPEAT: Final = 0.1
"""The part that a block has for every row with more than one of its entries left."""
MOST_CANDIDATES: Final = 128
"""Blocks compared for each step, so that the time for an entry does not grow with the inputs."""

Floats = NDArray[np.float32]
Counts = NDArray[np.int32]
Ids = NDArray[np.int64]


class Placing(NamedTuple):
    """A panel while steps are added to its sequence.

    sequence [steps + 1] are blocks. Entries are numbered row by row, those of row r from `starts[r]` on: blocks
    [entries, arrangements] says where each can be looked up, and members lists the entries of row r in block b from
    `firsts[r, b]` to `firsts[r, b + 1]`. remaining [blocks, 32] and left [32] count the entries without a step; taken
    [32, steps] is the entry of a step, step_of [entries] the step of an entry, or -1; dead [32, steps]. reached_from,
    reached_by and queue [steps] are room for a search: the step it came from, and the entry that this may give up;
    seen_in [steps + 1] says which search saw a step last, and at the end how many there were.
    """

    sequence: Ids
    starts: Ids
    blocks: Ids
    firsts: Ids
    members: Ids
    remaining: Counts
    left: Counts
    taken: Counts
    step_of: Counts
    dead: NDArray[np.bool_]
    urgency: Floats
    reached_from: Ids
    reached_by: Ids
    queue: Ids
    seen_in: Ids


class Best(NamedTuple):
    """Places of entries on the cheapest sequence so far: `taken`, `step_of` and `left` of a `Placing`."""

    taken: Counts
    step_of: Counts
    left: Counts


def matching_of(starts: Ids, blocks: Ids, block_count: int, gather_cost: float) -> Placing:
    """Return the cheapest sequence of whole chunks over `block_count` blocks, and where its entries go.

    A gather for every row of the panel costs as much as `gather_cost` steps.
    """
    longest = _new_matching(starts, blocks, block_count, int(gather_cost * np.diff(starts).max()) + 1)
    best = Best(longest.taken.copy(), longest.step_of.copy(), longest.left.copy())
    steps = _find_sequence(longest, best, gather_cost)
    return longest._replace(
        sequence=longest.sequence[: steps + 1],
        taken=np.ascontiguousarray(best.taken[:, :steps]),
        step_of=best.step_of,
        left=best.left,
    )


def _new_matching(starts: Ids, blocks: Ids, block_count: int, steps: int) -> Placing:
    """Return a panel of which no entry has a step, with room for `steps`."""
    matching = Placing(
        sequence=np.zeros(steps + 1, dtype=np.int64),
        starts=starts,
        blocks=blocks,
        firsts=np.zeros((PANEL_ROWS, block_count + 1), dtype=np.int64),
        members=np.empty(blocks.size, dtype=np.int64),
        remaining=np.zeros((block_count, PANEL_ROWS), dtype=np.int32),
        left=np.diff(starts).astype(np.int32),
        taken=np.full((PANEL_ROWS, steps), -1, dtype=np.int32),
        step_of=np.full(len(blocks), -1, dtype=np.int32),
        dead=np.zeros((PANEL_ROWS, steps), dtype=np.bool_),
        urgency=np.zeros((2, PANEL_ROWS), dtype=np.float32),
        reached_from=np.zeros(steps, dtype=np.int64),
        reached_by=np.zeros(steps, dtype=np.int64),
        queue=np.zeros(steps, dtype=np.int64),
        seen_in=np.zeros(steps + 1, dtype=np.int64),
    )
    _list_members(matching)
    return matching


@compiled_loop()
def _list_members(matching: Placing) -> None:
    """Sort the entries of each row by their blocks."""
    firsts, arrangements, listed = matching.firsts, matching.blocks.shape[1], 0
    for row in range(PANEL_ROWS):
        for entry in range(matching.starts[row], matching.starts[row + 1]):
            for arrangement in range(arrangements):
                matching.remaining[matching.blocks[entry, arrangement], row] += 1
        firsts[row, 0] = listed
        for block in range(len(matching.remaining)):
            # where the block after it begins once all of its entries are listed
            firsts[row, block + 1] = listed
            listed += matching.remaining[block, row]
        for entry in range(matching.starts[row], matching.starts[row + 1]):
            for arrangement in range(arrangements):
                place = matching.blocks[entry, arrangement] + 1
                matching.members[firsts[row, place]] = entry
                firsts[row, place] += 1


@compiled_loop()
def _find_sequence(matching: Placing, best: Best, gather_cost: float) -> int:
    """Choose blocks step by step; return the steps of the cheapest sequence of whole chunks, counting its gathers.

    A sequence that alone costs more than a shorter one with its gathers need not be made longer.
    """
    remaining, left, urgency = matching.remaining, matching.left, matching.urgency
    matching.sequence[0] = _next_block(remaining, left, urgency, -1, 0)
    cheapest, steps = gather_cost * _most_left(matching), 0
    for step in range(matching.taken.shape[1]):
        if step >= cheapest:
            break
        matching.sequence[step + 1] = _next_block(remaining, left, urgency, matching.sequence[step], step)
        _match(matching, step)
        cost = step + 1 + gather_cost * _most_left(matching)
        if (step + 1) % CHUNK_STEPS == 0 and cost < cheapest:
            cheapest, steps = cost, step + 1
            _keep(matching, best, steps)
    return steps


@compiled_loop()
def _keep(matching: Placing, best: Best, steps: int) -> None:
    """Copy where the entries go after so many steps."""
    for row in range(PANEL_ROWS):
        best.left[row] = matching.left[row]
        for step in range(steps):
            best.taken[row, step] = matching.taken[row, step]
    for entry in range(len(best.step_of)):
        best.step_of[entry] = matching.step_of[entry]


@compiled_loop()
def _most_left(matching: Placing) -> int:
    """Return the entries without a step of the row that has most of them."""
    most = 0
    for row in range(PANEL_ROWS):
        most = max(most, matching.left[row])
    return most


@compiled_loop(fastmath=True)
def _next_block(remaining: Counts, left: Counts, urgencies: Floats, present: int, step: int) -> int:
    """Return the block to go to from `present` (-1 at the start): the one of most value to the rows.

    It takes arrays of a `Placing`, as loops over its fields do not become vector code, and take six times as long.
    """
    blocks, most = len(remaining), 1
    for row in range(PANEL_ROWS):
        most = max(most, left[row])
    for row in range(PANEL_ROWS):
        share = np.float32(left[row]) / np.float32(most)
        # what a row weighs: a high power, as the row with most entries left decides
        urgencies[0, row] = share * share * share * share * share * share
        urgencies[1, row] = np.float32(0) if present >= 0 and remaining[present, row] > 0 else urgencies[0, row]
    # where no block is of value one that holds inputs: behind the last of them others may stand that do not
    best, best_value = 1 % blocks if present == 0 else 0, np.float32(0)
    for candidate in range(blocks):
        if candidate >= MOST_CANDIDATES and best_value > 0:
            break
        block = (step * MOST_CANDIDATES + candidate) % blocks
        value = np.float32(0)
        for row in range(PANEL_ROWS):
            count = remaining[block, row]
            value += np.float32(SUPPLY) * urgencies[0, row] * np.float32(count)
            value += urgencies[1, row] if count > 0 else np.float32(0)
            value += np.float32(REPEAT) * urgencies[0, row] if count > 1 else np.float32(0)
        if value > best_value and block != present:
            best, best_value = block, value
    return best


@compiled_loop()
def _match(matching: Placing, step: int) -> None:
    """Give `step` an entry of every row that has one for it."""
    for row in range(PANEL_ROWS):
        if matching.left[row] == 0:
            continue
        here, there = matching.sequence[step], matching.sequence[step + 1]
        waiting = matching.remaining[here, row] > 0 or matching.remaining[there, row] > 0
        # a search looks at the step itself first
        last = step if waiting else _search(matching, row, step)
        if last < 0:
            continue
        entry = _waiting_entry(matching, row, last)
        for arrangement in range(matching.blocks.shape[1]):
            matching.remaining[matching.blocks[entry, arrangement], row] -= 1
        matching.left[row] -= 1
        while last != step:
            given_up = matching.reached_by[last]
            matching.taken[row, last], matching.step_of[entry] = entry, last
            entry, last = given_up, matching.reached_from[last]
        matching.taken[row, step], matching.step_of[entry] = entry, step


@compiled_loop()
def _search(matching: Placing, row: int, step: int) -> int:
    """Return the step at the end of a path from `step` that can take an entry that is left over, or -1."""
    queue, seen_in, dead = matching.queue, matching.seen_in, matching.dead
    seen_in[-1] += 1
    search, filled, tried = seen_in[-1], 1, 0
    queue[0] = step
    seen_in[step] = search
    while tried < filled:
        present = queue[tried]
        tried += 1
        for block in (matching.sequence[present], matching.sequence[present + 1]):
            if matching.remaining[block, row] > 0:
                return present
        for block in (matching.sequence[present], matching.sequence[present + 1]):
            for index in range(matching.firsts[row, block], matching.firsts[row, block + 1]):
                entry = matching.members[index]
                other = matching.step_of[entry]
                if seen_in[other] != search and not dead[row, other]:
                    seen_in[other] = search
                    matching.reached_from[other], matching.reached_by[other] = present, entry
                    queue[filled] = other
                    filled += 1
    for index in range(filled):
        dead[row, queue[index]] = True
    return -1


@compiled_loop()
def _waiting_entry(matching: Placing, row: int, step: int) -> int:
    """Return an entry without a step in the fuller one of the blocks of `step`."""
    here, there = matching.sequence[step], matching.sequence[step + 1]
    block = here if matching.remaining[here, row] >= matching.remaining[there, row] else there
    for index in range(matching.firsts[row, block], matching.firsts[row, block + 1]):
        if matching.step_of[matching.members[index]] < 0:
            return matching.members[index]
    return -1


def panel_starts(counts: Ids) -> Ids:
    """Return where the entries of each row of a panel begin, [33], for up to 32 rows."""
    starts = np.zeros(PANEL_ROWS + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1 : len(counts) + 1])
    starts[len(counts) + 1 :] = starts[len(counts)]
    return starts
