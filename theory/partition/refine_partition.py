"""Annealing the parts of all row groups of a chain of layers, every second layer at the same time.

A layer's proposals touch the nets of that layer and of the next one. So layers of even number never touch what another
of even number touches, and the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern
from ..compiled import compiled
from .hypergraph import LayerHypergraph
from .partition import Owners

_BLOCK = 1 << 16
"""Proposals whose random numbers are drawn at once."""


@dataclass(frozen=True)
class Cooling:
    """Temperatures, in values: they fall over `rounds` of equal length, at the end of which the best are known."""

    proposals: int
    """Proposals for each group, over all rounds."""
    hottest: float
    coldest: float
    rounds: int = 25
    message_values: float = 0.0
    """Cost of a message, in values."""

    def temperature(self, turn: int) -> float:
        """The temperature of a round."""
        return self.hottest * (self.coldest / self.hottest) ** (turn / max(1, self.rounds - 1))


@dataclass(frozen=True, eq=False)
class Chain:
    """The layers of a network as hypergraphs, the owners of its inputs, and how full a part of each layer may be."""

    layers: Sequence[LayerHypergraph]
    input_owners: Owners
    part_count: int
    most_connections: Sequence[int]


class AnnealedPartition:
    """The parts of the groups of each layer, which rounds of proposals change."""

    def __init__(self, chain: Chain, parts: Sequence[Owners], cooling: Cooling) -> None:
        self._chain = chain
        self._cooling = cooling
        nets = _all_nets(chain, parts, with_messages=cooling.message_values > 0)
        self._layers = [_layer(chain, number, parts[number], nets) for number in range(len(chain.layers))]
        self._cost = sum(_cost_of(one, cooling.message_values) for one in nets[:-1])
        self._best_cost, self._best = self._cost, self.parts

    @property
    def parts(self) -> list[Owners]:
        """A copy of the current parts of the groups of each layer."""
        return [layer.seats.parts.copy() for layer in self._layers]

    @property
    def cost(self) -> float:
        """Cost of the current parts: values, and messages as so many values each."""
        return self._cost

    def anneal(self, seed: int, threads: int) -> list[Owners]:
        """Run all rounds; return the best parts after any of them, or before them."""
        with ThreadPoolExecutor(threads) as pool:
            for turn in range(self._cooling.rounds):
                for parity in (0, 1):
                    runs = [pool.submit(self._run, number, seed, turn) for number in self._numbers(parity)]
                    self._cost += sum(run.result() for run in runs)
                if self._cost < self._best_cost:
                    self._best_cost, self._best = self._cost, self.parts
        return self._best

    def _numbers(self, parity: int) -> range:
        return range(parity, len(self._layers), 2)

    def _run(self, number: int, seed: int, turn: int) -> float:
        layer, cooling = self._layers[number], self._cooling
        rng = np.random.default_rng((seed, turn, number))
        rule = Rule(cooling.temperature(turn), cooling.message_values, self._chain.most_connections[number])
        proposals = -(-cooling.proposals * len(layer.weights) // cooling.rounds)
        change = 0.0
        for first in range(0, proposals, _BLOCK):
            change += run_proposals(layer, rule, rng.random((min(_BLOCK, proposals - first), DRAWS)))
        return change


def cost_of_parts(chain: Chain, parts: Sequence[Owners], message_values: float) -> float:
    """Return the cost of parts: values sent, and messages as so many values each."""
    nets = _all_nets(chain, parts, with_messages=message_values > 0)
    return sum(_cost_of(one, message_values) for one in nets[:-1])


def _cost_of(nets: Nets, message_values: float) -> float:
    """Return the values that the nets of a layer send, and its messages as so many values each."""
    used = nets.users > 0
    volume = int((nets.sizes * used.sum(axis=1)).sum()) - int(nets.owned[used].sum())
    return volume + message_values * int((nets.sent > 0).sum())


def _all_nets(chain: Chain, parts: Sequence[Owners], *, with_messages: bool) -> list[Nets]:
    """Return the nets of every layer, and empty ones for what comes after the last."""
    count = chain.part_count
    none = np.zeros((1, count), dtype=np.int32)
    owners = chain.input_owners
    found: list[Nets] = []
    for layer, layer_parts in zip(chain.layers, parts, strict=True):
        users = layer.users(layer_parts, count)
        owned = layer.owned(owners, count)
        sent = owned.T @ (users > 0).astype(np.int32) if with_messages else none
        if with_messages:
            np.fill_diagonal(sent, 0)
        found.append(Nets(layer.net_sizes, users, owned, np.ascontiguousarray(sent)))
        owners = layer.owners_of(layer_parts)
    return [*found, Nets(np.ones(1, dtype=np.int64), none, none.copy(), none.copy())]


def _layer(chain: Chain, number: int, parts: Owners, nets: Sequence[Nets]) -> Layer:
    layer = chain.layers[number]
    members = layer.members
    if number + 1 < len(chain.layers):
        items, following = chain.layers[number + 1].net_of[members.indices], chain.layers[number + 1].net_count
    else:
        items, following = np.full(len(members.indices), -1, dtype=np.int32), 0
    return Layer(
        seats=_seats(parts, layer.weights, chain.part_count),
        weights=layer.weights,
        group_nets=layer.group_nets,
        nets=nets[number],
        member_nets=CsrPattern(members.pointers, items, following),
        next_nets=nets[number + 1],
    )


def _seats(parts: Owners, weights: NDArray[np.int64], part_count: int) -> Seats:
    counts = np.bincount(parts, minlength=part_count)
    # more seats than are taken now, so that parts of light groups can grow
    capacity = min(len(parts), 2 * int(counts.max(initial=0)) + 4)
    groups = np.full((part_count, capacity), -1, dtype=np.int32)
    by_part = np.argsort(parts, kind="stable")
    seat = np.empty(len(parts), dtype=np.int32)
    seat[by_part] = np.arange(len(parts)) - np.repeat(np.cumsum(counts) - counts, counts)
    groups[parts, seat] = np.arange(len(parts))
    loads = np.bincount(parts, weights=weights.astype(np.float64), minlength=part_count).astype(np.int64)
    return Seats(parts.copy(), loads, groups, counts.astype(np.int32), seat)


# Annealing the parts of one layer's row groups, compiled, while the layers beside it stand still.
#
# A proposal moves a group to another part, or swaps two. It changes which parts use the layer's nets, and who owns
# inputs of the next layer; both changes are counted exactly, in values sent, with messages as so many values each.
# Groups and nets are those of `redpebble.theory.partition.hypergraph`.

DRAWS = 6
"""Random numbers a proposal takes: group, aim, net, part, partner, acceptance."""

_SCANNED = 64


class Nets(NamedTuple):
    """The nets of a layer: inputs that the same groups use."""

    sizes: NDArray[np.int64]
    """Inputs of each net."""
    users: NDArray[np.int32]
    """Groups of each part that use each net, [nets, parts]."""
    owned: NDArray[np.int32]
    """Inputs of each net that each part owns, [nets, parts]; all 0 where the owners are free."""
    sent: NDArray[np.int32]
    """Values sent [from, to], kept up to date only where messages cost something."""


class Seats(NamedTuple):
    """The groups of each part."""

    parts: Owners
    loads: NDArray[np.int64]
    """Connections of each part."""
    groups: NDArray[np.int32]
    """[parts, most groups of a part], the first `counts` of each are taken."""
    counts: NDArray[np.int32]
    seat_index: NDArray[np.int32]
    """Position of each group in its part's row."""


class Layer(NamedTuple):
    """Arrays that a layer's proposals read and write."""

    seats: Seats
    weights: NDArray[np.int64]
    """Connections of each group."""
    group_nets: CsrPattern[np.int32]
    nets: Nets
    member_nets: CsrPattern[np.int32]
    """The next layer's nets that the outputs of each group are inputs of."""
    next_nets: Nets


class Move(NamedTuple):
    """A group, the part it leaves, and the part it goes to."""

    group: int
    source: int
    target: int


class Rule(NamedTuple):
    """Criterion of acceptance: temperature in values, cost of a message in values, most connections of a part."""

    temperature: float
    message_values: float
    most_connections: int


@compiled
def run_proposals(layer: Layer, rule: Rule, draws: NDArray[np.float64]) -> float:
    """Make one proposal for each row of draws [proposals, DRAWS]; return the change of the cost."""
    total = 0.0
    seats = layer.seats
    for number in range(len(draws)):
        row = draws[number]
        group = int(row[0] * len(layer.weights))
        source = 0 + seats.parts[group]  # of 64 bits, as targets are: nothing is compiled twice
        target = aim(layer, group, row)
        if target == source:
            continue
        # one draw chooses among the taken seats and an empty one: a swap with the group that sits there, or a move
        taken = seats.counts[target]
        seat = int(row[4] * (taken + 1))
        if seat == seats.groups.shape[1]:
            continue
        other = seats.groups[target, seat] if seat < taken else -1
        move = Move(group, source, target)
        if not is_balanced(layer, rule.most_connections, move, other):
            continue
        change = put(layer, rule.message_values, move)
        if other >= 0:
            change += put(layer, rule.message_values, Move(other, target, source))
        if change > 0 and row[5] >= np.exp(-change / rule.temperature):
            put(layer, rule.message_values, Move(group, target, source))
            if other >= 0:
                put(layer, rule.message_values, Move(other, source, target))
            continue
        sit(layer, move, other)
        total += change
    return total


@compiled
def aim(layer: Layer, group: int, row: NDArray[np.float64]) -> int:
    """Choose a part by a row of draws [DRAWS]: any, or one that has to do with a net of the group already."""
    part_count = len(layer.seats.loads)
    part = int(row[3] * part_count)
    kind = int(row[1] * 4)
    lists = layer.member_nets if kind == 2 else layer.group_nets
    first, end = lists.pointers[group], lists.pointers[group + 1]
    if kind == 3 or first == end:
        return part
    net = lists.indices[first + int(row[2] * (end - first))]
    if net < 0:
        return part
    table = layer.nets.users if kind == 0 else layer.nets.owned if kind == 1 else layer.next_nets.users
    for step in range(min(part_count, _SCANNED)):
        candidate = (part + step) % part_count
        if table[net, candidate] > 0 and candidate != layer.seats.parts[group]:
            return candidate
    return part


@compiled
def is_balanced(layer: Layer, most: int, move: Move, other: int) -> bool:
    """Return whether a move, or swap with `other`, leaves both parts below the limit, or the fuller one no fuller."""
    loads = layer.seats.loads
    shift = layer.weights[move.group] - (layer.weights[other] if other >= 0 else 0)
    allowed = max(most, loads[move.source], loads[move.target])
    return bool(loads[move.source] - shift <= allowed and loads[move.target] + shift <= allowed)


@compiled
def sit(layer: Layer, move: Move, other: int) -> None:
    """Note the new part of a group, and of the one it swaps with."""
    seats = layer.seats
    group, source, target = move
    shift = layer.weights[group] - (layer.weights[other] if other >= 0 else 0)
    seats.loads[source] -= shift
    seats.loads[target] += shift
    seat_index = seats.seat_index[group]
    seats.parts[group] = target
    if other >= 0:
        there = seats.seat_index[other]
        seats.groups[source, seat_index], seats.groups[target, there] = other, group
        seats.seat_index[group], seats.seat_index[other] = there, seat_index
        seats.parts[other] = source
        return
    seats.counts[source] -= 1
    last = seats.groups[source, seats.counts[source]]
    seats.groups[source, seat_index] = last
    seats.seat_index[last] = seat_index
    seats.groups[target, seats.counts[target]] = group
    seats.seat_index[group] = seats.counts[target]
    seats.counts[target] += 1


@compiled
def put(layer: Layer, message_values: float, move: Move) -> float:
    """Carry a move out on the nets; return the change of the cost."""
    group, source, target = move
    sizes, users, owned, sent = layer.nets
    change = 0.0
    for entry in range(layer.group_nets.pointers[group], layer.group_nets.pointers[group + 1]):
        net = layer.group_nets.indices[entry]
        users[net, source] -= 1
        if users[net, source] == 0:
            change -= sizes[net] - owned[net, source]
            if message_values > 0:
                change += message_values * send(owned[net], sent, source, -1)
        if users[net, target] == 0:
            change += sizes[net] - owned[net, target]
            if message_values > 0:
                change += message_values * send(owned[net], sent, target, 1)
        users[net, target] += 1
    return change + own(layer, message_values, move)


@compiled
def own(layer: Layer, message_values: float, move: Move) -> float:
    """Give the outputs of a group, which are inputs of the next layer, to another part; return the change."""
    group, source, target = move
    _, users, owned, sent = layer.next_nets
    change = 0.0
    for entry in range(layer.member_nets.pointers[group], layer.member_nets.pointers[group + 1]):
        net = layer.member_nets.indices[entry]
        if net < 0:
            continue
        owned[net, source] -= 1
        owned[net, target] += 1
        change += (1 if users[net, source] > 0 else 0) - (1 if users[net, target] > 0 else 0)
        if message_values > 0:
            change += message_values * (sends(users[net], sent, source, -1) + sends(users[net], sent, target, 1))
    return change


@compiled
def send(owned: NDArray[np.int32], sent: NDArray[np.int32], receiver: int, sign: int) -> int:
    """Add the inputs of a net, `owned` [parts], to `sent` [parts, parts] or take them away; return the new messages."""
    change = 0
    for sender in range(len(owned)):
        if owned[sender] > 0 and sender != receiver:
            change += step(sent, sender, receiver, sign * owned[sender])
    return change


@compiled
def sends(users: NDArray[np.int32], sent: NDArray[np.int32], sender: int, sign: int) -> int:
    """Add an input with `users` [parts] to `sent` [parts, parts], or take it away; return the new messages."""
    change = 0
    for receiver in range(len(users)):
        if users[receiver] > 0 and sender != receiver:
            change += step(sent, sender, receiver, sign)
    return change


@compiled
def step(sent: NDArray[np.int32], sender: int, receiver: int, values: int) -> int:
    """Add values to what is `sent` [parts, parts]; return by how much that changes the number of messages."""
    before = 1 if sent[sender, receiver] > 0 else 0
    sent[sender, receiver] += values
    return (1 if sent[sender, receiver] > 0 else 0) - before
