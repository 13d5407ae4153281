"""The fewest transfers of a small network over all orders and all evictions, and an order that has them: A*.

A state is what has run, what is resident, and what slow memory lacks of that, in one word of 62 bits. Loading a value
just before its use and evicting only for room loses nothing, and neither does running at once what is resident, so a
step loads the missing ends of one connection. No state needs less than a read of each neuron that is used again and not
resident, and a write of each output that slow memory lacks: by these the search is led. Parts of a network without
connections between them are solved one by one: run one after the other they need no more than together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.neuron_graph import NeuronGraph
from ..compiled import compiled, is_ready, never, one_connection

Ids = NDArray[np.int64]

LARGEST_PART: Final = 28
"""Connections of a part from which on none is solved: most of such parts have too many states."""

MOST_STATES: Final = 1 << 19
"""States of all parts together after which a search is given up, 50 MB and about a second."""

MOST_SOLVED: Final = 10_000
"""Connections of a network from which on its parts are not looked at."""

_WORD_BITS: Final = 62


class Exact(NamedTuple):
    """The fewest values that any order moves, and an order [W] that has them with the best eviction."""

    total: int
    order: Ids


def exact_optimum(network: NeuronGraph, capacity: int, is_late: Callable[[], bool] = never) -> Exact | None:
    """The optimum for a fast memory of `capacity` values; None where a part is too large for it, or it is late."""
    if network.connection_count > MOST_SOLVED:
        return None
    found = [(connections, _part(network, connections)) for connections in parts(network)]
    if not all(part for _, part in found) or not _is_searchable(is_late):
        return None
    room, moved, orders = MOST_STATES, 0, list[Ids]()
    for connections, part in found:
        solved = None if part is None or is_late() else _solve(part, capacity - 1, room)
        if part is None or solved is None:
            return None
        room -= solved.states
        moved += solved.moved
        orders.append(connections[_replayed(part, solved.steps)])
    isolated = int(np.sum(network.is_output & (network.in_degrees + network.out_degrees == 0)))
    order = np.concatenate([np.zeros(0, dtype=np.int64), *orders])
    return Exact(network.connection_count + moved + 2 * isolated, order)


class Excess(NamedTuple):
    """Transfers beyond a read of each neuron and a write of each output: rows in any batch, and values for B = 1."""

    rows: int
    values: int


def exact_excess(network: NeuronGraph, capacity: int, is_late: Callable[[], bool] = never) -> Excess:
    """Return the transfers of parts which can be solved beyond those of every order.

    In a batch, a neuron that is nothing but its bias costs less to read again than a row: parts with one count for
    B = 1 only. Once it is late no more parts are solved.
    """
    room, rows, values, known = MOST_STATES, 0, 0, dict[bytes, int]()
    if network.connection_count > MOST_SOLVED:
        return Excess(0, 0)
    only_bias = (network.in_degrees == 0) & ~network.is_input
    for connections in parts(network):
        part = _part(network, connections)
        if part is None or len(part.touching) < capacity:
            continue
        if part.key not in known:
            solved = _solve(part, capacity - 1, room) if _is_searchable(is_late) and not is_late() else None
            if solved is None:
                break
            room -= solved.states
            known[part.key] = solved.moved - len(part.touching) - part.output_count
        values += known[part.key]
        rows += known[part.key] * (not np.any(only_bias[network.sources[connections]]))
    return Excess(rows, values)


def parts(network: NeuronGraph) -> Iterator[Ids]:
    """The connections of each part of a network, ascending."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    size, ends = network.neuron_count, (network.sources, network.targets)
    graph = csr_array((np.ones(network.connection_count), ends), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    of = labels[network.sources]
    by_part = np.argsort(of, kind="stable")
    for connections in np.split(by_part, np.flatnonzero(np.diff(of[by_part])) + 1):
        if len(connections):
            yield connections


class _Part(NamedTuple):
    """A part with neurons from 0: ends of its connections, masks of connections into and at each neuron."""

    sources: Ids
    targets: Ids
    incoming: Ids
    touching: Ids
    outputs: int

    @property
    def output_count(self) -> int:
        return self.outputs.bit_count()

    @property
    def key(self) -> bytes:
        return b"".join((self.sources.tobytes(), self.targets.tobytes(), repr(self.outputs).encode()))


def _part(network: NeuronGraph, connections: Ids) -> _Part | None:
    """None for what is too large, or has an output that nothing is connected to."""
    neurons, ends = np.unique(
        np.concatenate((network.sources[connections], network.targets[connections])), return_inverse=True
    )
    count = len(connections)
    born = network.in_degrees[neurons] == 0
    if count > LARGEST_PART or count + 2 * len(neurons) > _WORD_BITS or np.any(network.is_output[neurons] & born):
        return None
    sources, targets = ends[:count].astype(np.int64), ends[count:].astype(np.int64)
    incoming, touching = np.zeros((2, len(neurons)), dtype=np.int64)
    for connection, (source, target) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
        incoming[target] |= 1 << connection
        touching[target] |= 1 << connection
        touching[source] |= 1 << connection
    outputs = sum(1 << place for place in np.flatnonzero(network.is_output[neurons]).tolist())
    return _Part(sources, targets, incoming, touching, outputs)


class _Solved(NamedTuple):
    """Values moved beside weights; of each step the connection loaded for, and what had run behind it."""

    moved: int
    steps: list[tuple[int, int]]
    states: int


def _is_searchable(is_late: Callable[[], bool]) -> bool:
    """Whether it is not late, and the search is compiled, if need be now."""
    one = _part(one_connection(), np.zeros(1, dtype=np.int64))
    return one is not None and is_ready(_search, is_late, one, _no_states(one, 1), 2)


def _solve(part: _Part, slots: int, room: int) -> _Solved | None:
    """None where `room` states are not enough."""
    count, search = len(part.sources), _no_states(part, room)
    goal = _search(part, search, slots)
    if goal < 0:
        return None
    moved, done_mask, steps = int(search.nodes[_COST, goal]), (1 << count) - 1, list[tuple[int, int]]()
    while goal:
        steps.append((int(search.nodes[_FIRST, goal]), int(search.keys[goal]) & done_mask))
        goal = int(search.nodes[_PARENT, goal])
    return _Solved(moved, steps[::-1], int(search.counters[0]))


def _no_states(part: _Part, room: int) -> States:
    return States(
        keys=np.zeros(room, dtype=np.int64),
        nodes=np.zeros((4, room), dtype=np.int32),
        table=np.zeros(1 << (2 * room).bit_length(), dtype=np.int32),
        heads=np.full(4 * len(part.sources) + 2 * len(part.touching) + 4, -1, dtype=np.int32),
        counters=np.zeros(1, dtype=np.int64),
    )


def _replayed(part: _Part, steps: list[tuple[int, int]]) -> Ids:
    """The order in which connections ran: each that was loaded for, behind it those whose ends were resident."""
    order, done = list[int](), 0
    for first, after in steps:
        order.append(first)
        done |= 1 << first
        while done != after:
            waiting = (c for c in range(len(part.sources)) if (after & ~done) >> c & 1)
            order.append(next(c for c in waiting if not int(part.incoming[part.sources[c]]) & ~done))
            done |= 1 << order[-1]
    return np.array(order, dtype=np.int64)


# Rows of a node: values moved so far, the next node of the same estimate, the state before it, what was loaded for.
_COST, _NEXT, _PARENT, _FIRST = 0, 1, 2, 3


class States(NamedTuple):
    """States [room] as words, their `nodes` [4, room], a hash `table` of node + 1, and a stack for each estimate."""

    keys: Ids
    nodes: NDArray[np.int32]
    table: NDArray[np.int32]
    heads: NDArray[np.int32]
    counters: Ids


class Reached(NamedTuple):
    """A state: masks of the connections that have run, of residents, of those dirty; and what was moved."""

    done: int
    resident: int
    dirty: int
    moved: int


@compiled
def _search(part: _Part, states: States, slots: int) -> int:
    """The node of the first complete state that is reached, -1 if there is no room for more states."""
    count, neurons = len(part.sources), len(part.touching)
    everything, residents = (1 << count) - 1, (1 << neurons) - 1
    if _put(part, states, Reached(0, 0, 0, 0), -1, -1) < 0:
        return -1
    estimate = 0
    while estimate < len(states.heads):
        node = int(states.heads[estimate])
        if node < 0:
            estimate += 1
            continue
        states.heads[estimate] = states.nodes[_NEXT, node]
        key = int(states.keys[node])
        if states.table[_place(states, key)] != node + 1:
            continue
        done = key & everything
        if done == everything:
            return node
        state = Reached(done, (key >> count) & residents, key >> (count + neurons), int(states.nodes[_COST, node]))
        for first in range(count):
            if (done >> first) & 1 or part.incoming[part.sources[first]] & ~done:
                continue
            if not _load_for(part, states, state, node, first, slots):
                return -1
    return -1


@compiled
def _load_for(part: _Part, states: States, state: Reached, node: int, first: int, slots: int) -> bool:
    """Put every state in which a connection can be run next; False if there is no room for them."""
    ends = (1 << part.sources[first]) | (1 << part.targets[first])
    others, neurons = state.resident & ~ends, len(part.touching)
    evicted = _bit_count(others) + 2 - slots
    if evicted <= 0:
        return _put(part, states, _after(part, state, first, 0), node, first) >= 0
    for one in range(neurons):
        if not (others >> one) & 1:
            continue
        if evicted == 1:
            if _put(part, states, _after(part, state, first, 1 << one), node, first) < 0:
                return False
            continue
        for other in range(one):
            if (others >> other) & 1:
                victims = (1 << one) | (1 << other)
                if _put(part, states, _after(part, state, first, victims), node, first) < 0:
                    return False
    return True


@compiled
def _after(part: _Part, state: Reached, first: int, victims: int) -> Reached:
    """The state once some have left, the ends are loaded, and all has run whose ends are resident."""
    ends = (1 << part.sources[first]) | (1 << part.targets[first])
    moved = state.moved + _bit_count(ends & ~state.resident) + _bit_count(victims & state.dirty)
    resident, dirty = (state.resident | ends) & ~victims, state.dirty & ~victims
    done, before = state.done, -1
    while before != done:
        before = done
        for connection in range(len(part.sources)):
            source, target = part.sources[connection], part.targets[connection]
            both = (1 << source) | (1 << target)
            if not (done >> connection) & 1 and resident & both == both and part.incoming[source] & ~done == 0:
                done |= 1 << connection
                dirty |= 1 << target
    for neuron in range(len(part.touching)):
        if (resident >> neuron) & 1 and part.touching[neuron] & ~done == 0:
            resident &= ~(1 << neuron)
            moved += int((dirty & part.outputs) >> neuron) & 1
            dirty &= ~(1 << neuron)
    return Reached(done, resident, dirty, moved)


@compiled
def _least_left(part: _Part, state: Reached) -> int:
    """Reads of neurons that are used again and not resident, and writes of outputs that are not written."""
    left = 0
    for neuron in range(len(part.touching)):
        is_used = part.touching[neuron] & ~state.done != 0
        left += int(is_used and not (state.resident >> neuron) & 1)
        is_unwritten = part.incoming[neuron] & ~state.done != 0 or (state.dirty >> neuron) & 1 != 0
        left += int((part.outputs >> neuron) & 1 != 0 and is_unwritten)
    return left


@compiled
def _put(part: _Part, states: States, state: Reached, parent: int, first: int) -> int:
    """Put a state, unless it was reached with as little; 0, or -1 if there is no room for it."""
    count, neurons = len(part.sources), len(part.touching)
    key = state.done | (state.resident << count) | (state.dirty << (count + neurons))
    place = _place(states, key)
    known = int(states.table[place]) - 1
    if known >= 0 and states.nodes[_COST, known] <= state.moved:
        return 0
    node = int(states.counters[0])
    if node == len(states.keys):
        return -1
    states.counters[0] = node + 1
    states.table[place] = node + 1
    estimate = state.moved + _least_left(part, state)
    states.keys[node] = key
    states.nodes[_COST, node], states.nodes[_NEXT, node] = state.moved, states.heads[estimate]
    states.nodes[_PARENT, node], states.nodes[_FIRST, node] = parent, first
    states.heads[estimate] = node
    return 0


@compiled
def _place(states: States, key: int) -> int:
    """The place of a key in the table, or the next free one behind its hash."""
    mask = len(states.table) - 1
    place = ((key * 0x1E3779B97F4A7C15) >> 20) & mask
    while states.table[place] and states.keys[states.table[place] - 1] != key:
        place = (place + 1) & mask
    return place


@compiled
def _bit_count(mask: int) -> int:
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count
