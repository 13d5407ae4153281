"""A connection order under moves: which connection runs when, and the uses of each neuron as a chain.

Use 2 c is that of connection c's source, 2 c + 1 of its target. Moving a run of connections shifts the others between
its old and its new step but leaves their chains alone: only the ends of what moved are taken out and put in again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph
from ...compiled import compiled

Ints = NDArray[np.int32]


class Line(NamedTuple):
    """`ends` [2 W] are the neurons of the uses, `order` and `steps` [W] inverse to each other; -1 ends a chain.

    `starts` [2, N + 1] and `connections` [2, W] list the connections into each neuron and out of it.
    """

    ends: Ints
    order: Ints
    steps: Ints
    nexts: Ints
    prevs: Ints
    starts: Ints
    connections: Ints


class Move(NamedTuple):
    """The connections at `first` .. `first + length - 1` go so far that the first of them runs at `goal`."""

    first: int
    length: int
    goal: int


def line_of(network: NeuronGraph, order: NDArray[np.int64]) -> Line:
    """The line of an order [W]."""
    count = network.connection_count
    ends = np.stack((network.sources, network.targets), axis=1).astype(np.int32).reshape(-1)
    uses = (2 * order[:, None] + np.arange(2)).reshape(-1)
    grouped = uses[np.argsort(ends[uses], kind="stable")]
    is_same = ends[grouped[1:]] == ends[grouped[:-1]]
    nexts, prevs = np.full(2 * count, -1, dtype=np.int32), np.full(2 * count, -1, dtype=np.int32)
    nexts[grouped[:-1][is_same]] = grouped[1:][is_same]
    prevs[grouped[1:][is_same]] = grouped[:-1][is_same]
    steps = np.empty(count, dtype=np.int32)
    steps[order] = np.arange(count)
    incoming, outgoing = network.incoming, network.outgoing
    return Line(
        ends,
        order.astype(np.int32),
        steps,
        nexts,
        prevs,
        np.stack((incoming.pointers, outgoing.pointers)).astype(np.int32),
        np.stack((incoming.indices, outgoing.indices)).astype(np.int32),
    )


@compiled
def moment(line: Line, use: int) -> int:
    """2 s for the source of step s, 2 s + 1 for its target."""
    return 2 * int(line.steps[use >> 1]) + (use & 1)


@compiled
def earliest(line: Line, move: Move) -> int:
    """The first step that the run can begin at: behind all connections into its sources."""
    least = 0
    for step in range(move.first, move.first + move.length):
        source = line.ends[2 * line.order[step]]
        for entry in range(line.starts[0, source], line.starts[0, source + 1]):
            least = max(least, int(line.steps[line.connections[0, entry]]) + 1)
    return least


@compiled
def latest(line: Line, move: Move) -> int:
    """The last step that the run can begin at: before all connections out of its targets."""
    most = len(line.order)
    for step in range(move.first, move.first + move.length):
        target = line.ends[2 * line.order[step] + 1]
        for entry in range(line.starts[1, target], line.starts[1, target + 1]):
            most = min(most, int(line.steps[line.connections[1, entry]]))
    return most - move.length


@compiled
def put_move(line: Line, move: Move) -> None:
    """Carry a move out."""
    order, steps = line.order, line.steps
    low, high = min(move.first, move.goal), max(move.first, move.goal) + move.length
    # Two parts are exchanged: both are turned round, then the whole.
    cut = low + move.length if move.goal > move.first else high - move.length
    _turn(order, low, cut)
    _turn(order, cut, high)
    _turn(order, low, high)
    for step in range(low, high):
        steps[order[step]] = step
    for number in range(move.length):
        # In the direction of the move, the foremost first: what is not yet put in must not stand in the way.
        step = move.goal + (move.length - 1 - number if move.goal > move.first else number)
        _put_use(line, 2 * int(order[step]))
        _put_use(line, 2 * int(order[step]) + 1)


@compiled
def _turn(order: Ints, first: int, end: int) -> None:
    last = end - 1
    while first < last:
        order[first], order[last] = order[last], order[first]
        first += 1
        last -= 1


@compiled
def _put_use(line: Line, use: int) -> None:
    """Take a use out of its chain and put it in where it belongs now."""
    nexts, prevs = line.nexts, line.prevs
    before, after = int(prevs[use]), int(nexts[use])
    now = moment(line, use)
    if (before < 0 or moment(line, before) < now) and (after < 0 or moment(line, after) > now):
        return
    if before >= 0:
        nexts[before] = after
    if after >= 0:
        prevs[after] = before
    while after >= 0 and moment(line, after) < now:
        before, after = after, int(nexts[after])
    while before >= 0 and moment(line, before) > now:
        before, after = int(prevs[before]), before
    nexts[use], prevs[use] = after, before
    if before >= 0:
        nexts[before] = use
    if after >= 0:
        prevs[after] = use
