"""Greedy rolling, compiled: starts for the search, in which targets roll through the open slots.

A source's score is the sum of remaining(target)^-exponent over its open targets: finish what is nearly done. A target
may open once all its sources that are targets themselves have opened; the earliest of the open ones can then always be
finished. The final source of the best score is loaded, and the target opens whose sources' scores sum up to most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....sparse.csr import CsrPattern
from ....sparse.neuron_graph import NeuronGraph
from ...compiled import compiled, is_ready, never
from .interval_stabbing import TargetOrders

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]
# Counters: targets opened, targets closed, closed targets that have passed on their value, and those that still will;
# targets in the pool, and the place in it where the next look begins; sources whose worth has changed; slots that are
# filled before the first source is loaded.
OPENED, CLOSED, PASSED, PASSING, POOLED, LOOKED, CHANGED, FILLED = 0, 1, 2, 3, 4, 5, 6, 7


class Graph(NamedTuple):
    """The network for compiled loops; the connections into each neuron, and out of it, by id."""

    sources: Ids
    targets: Ids
    incoming: CsrPattern
    outgoing: CsrPattern


STEPS: Final = 128
"""Targets opened, or sources loaded, between two questions for the time."""

LOOKS: Final = 50_000_000
"""Connections looked at to choose all targets of a network; more looks found no better orders of large networks."""

FEWEST_LOOKS: Final = 32
"""Targets of the pool that are compared before one opens, at least."""


class BestSources(NamedTuple):
    """A tournament of the sources: which of them is worth most, where few of N change between two questions.

    `winners` [2 P] is a binary tree whose leaves, from P >= N + 1 on, are the sources, or N for none; `worths` [N + 1].
    `changed` [N] lists the sources whose worth is to be taken again, `is_changed` [N] says which they are.
    """

    winners: Ids
    worths: NDArray[np.float64]
    changed: Ids
    is_changed: Flags


class Rolling(NamedTuple):
    """State that changes while targets roll; the names are those of the theory."""

    worths: NDArray[np.float64]
    scores: NDArray[np.float64]
    remaining: Ids
    waiting: Ids
    may_open: Flags
    is_open: Flags
    is_final: Flags
    has_run: Flags
    orders: Ids
    passing: Ids
    pool: Ids
    best: BestSources
    counters: Ids


def greedy_target_orders(network: NeuronGraph, open_count: int, exponent: float) -> TargetOrders:
    """Load the final source that helps most, open the target whose sources would help most.

    Args:
        network: what to run.
        open_count: targets open at once, M - 2 or less.
        exponent: how much nearly finished targets are preferred; 2, 3 and 6 are worth trying.

    Raises:
        ValueError: no open target.
    """
    found = rolled_in_time(network, open_count, exponent, never)
    assert found is not None
    return found


def rolled_in_time(
    network: NeuronGraph, open_count: int, exponent: float, is_late: Callable[[], bool]
) -> TargetOrders | None:
    """Do the same while it is not late: None once it is, which is asked now and again.

    Raises:
        ValueError: no open target.
    """
    if open_count < 1:
        raise ValueError(f"expected 1 open target or more, got {open_count}")
    # read-only arrays would be compiled for anew
    sources, targets = (np.require(ids, requirements="W") for ids in (network.sources, network.targets))
    graph = Graph(sources, targets, network.incoming, network.outgoing)
    rolling = _rolling(network, exponent)
    looks = max(FEWEST_LOOKS, LOOKS // max(1, network.connection_count))
    is_done = False
    if not is_ready(roll, is_late, graph, rolling, open_count, looks):
        return None
    while not is_done:
        if is_late():
            return None
        is_done = roll(graph, rolling, open_count, looks)
    return TargetOrders(rolling.orders[0], rolling.orders[1], open_count)


def _rolling(network: NeuronGraph, exponent: float) -> Rolling:
    is_target = network.in_degrees > 0
    worths = np.zeros(int(network.in_degrees.max(initial=1)) + 1)
    worths[1:] = np.arange(1, len(worths), dtype=np.float64) ** -exponent
    waiting = np.bincount(network.targets[is_target[network.sources]], minlength=network.neuron_count).astype(np.int64)
    count, may_open, is_final = network.neuron_count, is_target & (waiting == 0), ~is_target
    pool, first = np.zeros(count, dtype=np.int64), np.flatnonzero(may_open)
    pool[: len(first)] = first
    counters = np.zeros(8, dtype=np.int64)
    counters[POOLED] = len(first)
    return Rolling(
        worths=worths,
        scores=np.zeros(count),
        remaining=network.in_degrees.copy(),
        waiting=waiting,
        may_open=may_open,
        is_open=np.zeros(count, dtype=np.bool_),
        is_final=is_final,
        has_run=np.zeros(network.connection_count, dtype=np.bool_),
        orders=np.zeros((2, int(is_target.sum())), dtype=np.int64),
        passing=np.zeros(count, dtype=np.int64),
        pool=pool,
        best=_best_sources(is_final),
        counters=counters,
    )


def _best_sources(is_final: Flags) -> BestSources:
    """The tournament before anything has a score: sources that are final are worth 0, the others less."""
    count = len(is_final)
    leaves = 1 << count.bit_length()
    worths = np.append(np.where(is_final, 0.0, -1.0), -2.0)
    winners = np.full(2 * leaves, count, dtype=np.int64)
    winners[leaves : leaves + count] = np.arange(count)
    best = BestSources(winners, worths, np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_))
    while leaves > 1:
        leaves //= 2
        left, right = winners[2 * leaves : 4 * leaves].reshape(-1, 2).T
        winners[leaves : 2 * leaves] = np.where(worths[left] >= worths[right], left, right)
    return best


@compiled
def roll(graph: Graph, rolling: Rolling, open_count: int, looks: int) -> bool:
    """Fill `STEPS` slots, or load `STEPS` sources once all are full; return whether all targets have opened and closed.

    Both are one function, since another one that is called from outside would be compiled with all that it calls.
    """
    counters = rolling.counters
    if counters[FILLED] < open_count:
        counters[FILLED] = min(counters[FILLED] + STEPS, open_count)
        _fill(graph, rolling, counters[FILLED], -1, looks)
        return False
    for _ in range(STEPS):
        if counters[OPENED] == counters[CLOSED]:
            return True
        source = _best_source(rolling)
        while _load(graph, rolling, source):
            _fill(graph, rolling, open_count, source, looks)
    return False


@compiled
def _best_source(rolling: Rolling) -> int:
    counters = rolling.counters
    if counters[PASSED] < counters[PASSING]:
        first: int = counters[PASSED]
        counters[PASSED] += 1
        return rolling.passing[first]
    _settle(rolling)
    return rolling.best.winners[1]


@compiled
def _settle(rolling: Rolling) -> None:
    """Play the tournament again where worths have changed: from the leaves up, or all of it if that is less."""
    winners, worths = rolling.best.winners, rolling.best.worths
    leaves, count = len(winners) // 2, rolling.counters[CHANGED]
    rolling.counters[CHANGED] = 0
    for place in range(count):
        source = rolling.best.changed[place]
        rolling.best.is_changed[source] = False
        worths[source] = -1.0
        if rolling.is_final[source]:
            worths[source] = rolling.scores[source]
    if 8 * count > leaves:
        for node in range(leaves - 1, 0, -1):
            winners[node] = _winner(rolling.best, node)
        return
    for place in range(count):
        node, source = (leaves + rolling.best.changed[place]) >> 1, rolling.best.changed[place]
        while node > 0:
            before, winners[node] = winners[node], _winner(rolling.best, node)
            # as before, and worth as much: above it nothing has changed for this source
            if winners[node] == before and before != source:
                break
            node >>= 1


@compiled
def _winner(best: BestSources, node: int) -> int:
    """The better of two, the smaller id of equal ones."""
    left, right = best.winners[2 * node], best.winners[2 * node + 1]
    return left if best.worths[left] >= best.worths[right] else right


@compiled
def _touch(rolling: Rolling, source: int) -> None:
    """Note that the worth of a source has changed."""
    if not rolling.best.is_changed[source]:
        rolling.best.is_changed[source] = True
        rolling.best.changed[rolling.counters[CHANGED]] = source
        rolling.counters[CHANGED] += 1


@compiled
def _load(graph: Graph, rolling: Rolling, source: int) -> bool:
    """Run the connections of a source to open targets; whether there was any."""
    has_any = False
    for entry in range(graph.outgoing.pointers[source], graph.outgoing.pointers[source + 1]):
        connection = graph.outgoing.indices[entry]
        if rolling.is_open[graph.targets[connection]] and not rolling.has_run[connection]:
            _run(graph, rolling, connection)
            has_any = True
    return has_any


@compiled
def _run(graph: Graph, rolling: Rolling, connection: int) -> None:
    target = graph.targets[connection]
    left = rolling.remaining[target] - 1
    rolling.remaining[target] = left
    rolling.has_run[connection] = True
    rolling.scores[graph.sources[connection]] -= rolling.worths[left + 1]
    _touch(rolling, graph.sources[connection])
    if left == 0:
        _close(graph, rolling, target)
        return
    gain = rolling.worths[left] - rolling.worths[left + 1]
    for entry in range(graph.incoming.pointers[target], graph.incoming.pointers[target + 1]):
        of_target: int = graph.incoming.indices[entry]
        if not rolling.has_run[of_target]:
            source: int = graph.sources[of_target]
            rolling.scores[source] += gain
            _touch(rolling, source)


@compiled
def _close(graph: Graph, rolling: Rolling, target: int) -> None:
    counters = rolling.counters
    rolling.is_open[target] = False
    rolling.is_final[target] = True
    _touch(rolling, target)
    rolling.orders[1, counters[CLOSED]] = target
    counters[CLOSED] += 1
    if graph.outgoing.pointers[target + 1] > graph.outgoing.pointers[target]:
        rolling.passing[counters[PASSING]] = target
        counters[PASSING] += 1


@compiled
def _fill(graph: Graph, rolling: Rolling, open_count: int, source: int, looks: int) -> None:
    """Open the best targets while there is room: of those of the source that is loaded, and of `looks` more.

    A source of -1 is none. Targets that may open are in a pool, which is looked at in turns.
    """
    counters = rolling.counters
    while counters[OPENED] - counters[CLOSED] < open_count:
        best = _best_target(graph, rolling, source, looks)
        if best < 0:
            return
        _open(graph, rolling, best)


@compiled
def _best_target(graph: Graph, rolling: Rolling, source: int, looks: int) -> int:
    """The best of the targets looked at, the smallest id of equal ones; -1 if none may open."""
    counters, pool = rolling.counters, rolling.pool
    best, best_worth = -1, -1e300
    if source >= 0 and looks < counters[POOLED]:
        for entry in range(graph.outgoing.pointers[source], graph.outgoing.pointers[source + 1]):
            connection: int = graph.outgoing.indices[entry]
            reached: int = graph.targets[connection]
            if rolling.may_open[reached]:
                best, best_worth = _better(graph, rolling, reached, best, best_worth)
    looked = 0
    if looks >= counters[POOLED]:
        counters[LOOKED] = 0
    while looked < min(looks, counters[POOLED]):
        if counters[LOOKED] >= counters[POOLED]:
            counters[LOOKED] = 0
        place: int = counters[LOOKED]
        target: int = pool[place]
        if not rolling.may_open[target]:
            counters[POOLED] -= 1
            pool[place] = pool[counters[POOLED]]
            continue
        best, best_worth = _better(graph, rolling, target, best, best_worth)
        counters[LOOKED] += 1
        looked += 1
    return best


@compiled
def _better(graph: Graph, rolling: Rolling, target: int, best: int, best_worth: float) -> tuple[int, float]:
    """Return the better of a target and the best one until now, with its worth."""
    worth = _worth(graph, rolling, target)
    if worth > best_worth or (worth == best_worth and target < best):
        return target, worth
    return best, best_worth


@compiled
def _worth(graph: Graph, rolling: Rolling, target: int) -> float:
    total = 0.0
    for entry in range(graph.incoming.pointers[target], graph.incoming.pointers[target + 1]):
        connection: int = graph.incoming.indices[entry]
        total += float(rolling.scores[graph.sources[connection]])
    return total


@compiled
def _open(graph: Graph, rolling: Rolling, target: int) -> None:
    rolling.orders[0, rolling.counters[OPENED]] = target
    rolling.counters[OPENED] += 1
    rolling.may_open[target], rolling.is_open[target] = False, True
    worth = rolling.worths[rolling.remaining[target]]
    for entry in range(graph.incoming.pointers[target], graph.incoming.pointers[target + 1]):
        connection: int = graph.incoming.indices[entry]
        source: int = graph.sources[connection]
        rolling.scores[source] += worth
        _touch(rolling, source)
    for entry in range(graph.outgoing.pointers[target], graph.outgoing.pointers[target + 1]):
        reached = graph.targets[graph.outgoing.indices[entry]]
        rolling.waiting[reached] -= 1
        if rolling.waiting[reached] == 0:
            rolling.may_open[reached] = True
            rolling.pool[rolling.counters[POOLED]] = reached
            rolling.counters[POOLED] += 1
