"""Annealing the parts of all row groups of a chain of layers, every second layer at the same time.

A layer's proposals touch the nets of that layer and of the next one. So layers of even number never touch what another
of even number touches, and the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern
from .hypergraph import LayerHypergraph
from .partition import Owners
from .refine_layer import DRAWS, Layer, Nets, Rule, Seats, run_proposals

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
    """Return what parts cost: values, and messages as so many values each."""
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
