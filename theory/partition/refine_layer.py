"""Annealing the parts of one layer's row groups, compiled, while the layers beside it stand still.

A proposal moves a group to another part, or swaps two. It changes which parts use the layer's nets, and who owns
inputs of the next layer; both changes are counted exactly, in values sent, with messages as so many values each.
Groups and nets are those of `redpebble.theory.partition.hypergraph`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern
from ..compiled import compiled
from .partition import Owners

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
