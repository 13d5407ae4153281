"""The order of neurons that is predicted to be fastest: orders that are made, then annealing from the best of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.formats.permute_lookup import BLOCK
from ...kernels.machine import Machine
from ...kernels.work import Layer
from ..annealing.annealing import TracePoint, seconds_left
from .costs import OrderCosts, Times
from .graph_orders import cuthill_mckee_numbers, pass_numbers
from .made_orders import (
    count_numbers,
    dealt_numbers,
    locality,
    outgoing_counts,
    spectral_numbers,
    support_numbers,
)
from .neuron_groups import NeuronGroups
from .swap_annealing import anneal_positions

Indices = NDArray[np.int64]
Numbers = NDArray[np.int64] | NDArray[np.float64]

IDENTITY: Final = "identity"

LOCAL: Final = 0.9
"""`locality` below which a mask has an order that is worth looking for."""

SKEWED: Final = 2.0
"""Variance over mean of the connections that leave a group's neurons, from which their counts matter."""

WORTH: Final = 0.998
"""Predicted time, over that of the best so far, above which an order is not taken."""


MOST_LOST: Final = 1.005
"""Predicted time of a single layer at a batch, over that of neurons as they stand, above which no order is taken."""


class KnownOrder(NamedTuple):
    """Positions that a search found for a network of the same groups, and the ratio of times that they had there."""

    positions: Indices
    ratio: float


class Request(NamedTuple):
    """The request of a search: batches that count alike, a machine, and seconds to anneal.

    `orders` names the constructive orders to try; None: all that suit the network. `known` are tried first.
    """

    batches: tuple[int, ...] = (1, 64)
    machine: Machine = Machine()
    seconds: float = 0.0
    seed: int = 0
    orders: tuple[str, ...] | None = None
    known: tuple[KnownOrder, ...] = ()


class Tried(NamedTuple):
    """An order that was tried, and its predicted time over that of the neurons as they stand, mean of the batches."""

    name: str
    ratio: float
    trace: tuple[TracePoint, ...] = ()


@dataclass(frozen=True, eq=False)
class Reordering:
    """The positions of all neurons, the name of their order, what was tried, and times by batch before and after.

    `layer_times` are those of each weight.
    """

    positions: Indices
    name: str
    tried: tuple[Tried, ...]
    before: Times
    after: Times
    layer_times: tuple[tuple[Times, Times], ...]

    @property
    def ratio(self) -> float:
        """The mean over batches of the time after over that before."""
        ratios = _ratios(self.before, self.after)
        return sum(ratios) / max(1, len(ratios))


def _ratios(before: Times, after: Times) -> list[float]:
    return [after[batch] / time if time else 1.0 for batch, time in before.items()]


class _Local(NamedTuple):
    """Orders from the graph share the one they start from."""

    groups: NeuronGroups
    numbers: Indices
    rng: np.random.Generator


GRAPH_ORDERS: Final[Mapping[str, Callable[[_Local], Numbers | None]]] = MappingProxyType(
    {
        "cuthill-mckee": lambda local: local.numbers,
        "spectral": lambda local: spectral_numbers(local.groups, local.numbers),
        "passes": lambda local: pass_numbers(local.groups, local.numbers),
        "support": lambda local: support_numbers(local.groups, local.rng),
    }
)
"""Orders for networks in which neurons have neighbours."""

SLOW_ORDERS: Final = ("spectral", "support")
MOST_TRIED: Final = 1 << 18
"""Connections from which those take too long to try them without being asked for a search."""

MOST_ORDERED: Final = 1 << 24
"""Connections from which no order is tried without being asked for a search: their graph takes 30 bytes for each."""

COUNT_ORDERS: Final[Mapping[str, Callable[[NeuronGroups], Numbers]]] = MappingProxyType(
    {"counts": count_numbers, "dealt": lambda groups: dealt_numbers(groups, BLOCK)}
)
"""Orders for networks with neurons that many more connections leave than others."""

ORDERS: Final = (IDENTITY, *GRAPH_ORDERS, *COUNT_ORDERS)


def reorder(groups: NeuronGroups, layers: Sequence[Layer], request: Request) -> Reordering:
    """Return the best order found for the weights of `groups`, whose costs begin with `layers`, never a slower one.

    The same request gives the same order. Random masks are known in milliseconds, and not ordered by their graph.

    Raises:
        ValueError: there is no such order.
    """
    unknown = [name for name in request.orders or () if name not in ORDERS]
    if unknown:
        raise ValueError(f"unknown order {unknown[0]!r}, accepted are {', '.join(ORDERS)}")
    made = _made_orders(groups, request) if groups.free.any() and groups.weights else []
    if not made and request.seconds == 0:
        # nothing to try: what the layers cost need not be known
        return Reordering(groups.identity(), IDENTITY, (), {}, {}, tuple(({}, {}) for _ in layers))
    costs = OrderCosts(groups, tuple(layers), request.machine, request.batches)
    best = _Best(costs, groups.identity(), costs.times(groups.identity()))
    seconds = request.seconds
    for known in request.known:
        best.offer("found before", known.positions)
        seconds = min(seconds, seconds_left(1 - best.ratio, 1 - known.ratio, request.seconds))
    for name, numbers in made:
        best.offer(name, groups.positions_by(numbers))
    if request.seconds > 0:
        _anneal(best, request._replace(seconds=seconds))
    return best.reordering()


class _Best:
    """The best positions so far."""

    def __init__(self, costs: OrderCosts, identity: Indices, before: Times) -> None:
        self.costs = costs
        self.positions = identity
        self.before = self.after = before
        self.names: list[str] = []
        self.tried: list[Tried] = []
        self.ratio = 1.0
        self._each_before = self._each(identity)

    def _each(self, positions: Indices) -> list[Times]:
        return [self.costs.weight_times(number, positions) for number in range(len(self.costs.layers))]

    def reordering(self) -> Reordering:
        """Return the result."""
        pairs = zip(self._each_before, self._each(self.positions), strict=True)
        name = "+".join(self.names) or IDENTITY
        return Reordering(self.positions, name, tuple(self.tried), self.before, self.after, tuple(pairs))

    def offer(
        self, name: str, positions: Indices, trace: tuple[TracePoint, ...] = (), *, further: bool = False
    ) -> None:
        """Take positions that are faster on the mean, and slower at no batch and for no weight.

        `further` where they begin with the best.
        """
        times = self.costs.times(positions)
        ratios = _ratios(self.before, times)
        ratio = sum(ratios) / max(1, len(ratios))
        self.tried.append(Tried(name, ratio, trace))
        # a group among many gains little of the whole
        worth = 1.0 if further else WORTH
        if ratio < worth * self.ratio and max(ratios) <= 1.0 and self._worst(positions) <= MOST_LOST:
            self.positions, self.after, self.ratio = positions, times, ratio
            self.names = [*self.names, name] if further else [name]

    def _worst(self, positions: Indices) -> float:
        """Return the largest ratio of a weight's time at a batch to that of the neurons as they stand."""
        pairs = zip(self._each_before, self._each(positions), strict=True)
        return max(
            (after[batch] / time for before, after in pairs for batch, time in before.items() if time), default=0.0
        )


def _made_orders(groups: NeuronGroups, request: Request) -> list[tuple[str, Numbers]]:
    """Return the constructive orders that were asked for, or that suit the network."""
    rng = np.random.default_rng(request.seed)
    wanted = _suitable(groups, request, rng) if request.orders is None else request.orders
    found: list[tuple[str, Numbers]] = [(name, COUNT_ORDERS[name](groups)) for name in wanted if name in COUNT_ORDERS]
    if not any(name in GRAPH_ORDERS for name in wanted):
        return found
    local = _Local(groups, cuthill_mckee_numbers(groups), rng)
    for name in wanted:
        numbers = GRAPH_ORDERS[name](local) if name in GRAPH_ORDERS else None
        if numbers is not None:
            found.append((name, numbers))
    return found


def _suitable(groups: NeuronGroups, request: Request, rng: np.random.Generator) -> tuple[str, ...]:
    suitable: list[str] = []
    connections = sum(len(weight.rows.indices) for weight in groups.weights)
    if request.seconds == 0 and connections > MOST_ORDERED:
        return ()
    if any(locality(weight.rows, rng) < LOCAL for weight in groups.weights):
        small = connections <= MOST_TRIED or request.seconds > 0
        suitable += [name for name in GRAPH_ORDERS if small or name not in SLOW_ORDERS]
    counts = outgoing_counts(groups)
    members = [counts[start:end] for start, end in zip(groups.starts[:-1], groups.starts[1:], strict=True)]
    free = [own for own, free in zip(members, groups.free.tolist(), strict=True) if free and own.any()]
    if any(own.var() > SKEWED * own.mean() for own in free):
        suitable += COUNT_ORDERS
    return tuple(suitable)


def _anneal(best: _Best, request: Request) -> None:
    """Anneal one free group after the other, each for its share of the time."""
    groups = best.costs.groups
    views = {group: best.costs.views(group, best.positions) for group in np.flatnonzero(groups.free).tolist()}
    sizes = {group: sum(len(view.rows.indices) for view in own) for group, own in views.items()}
    for group, size in sizes.items():
        if size == 0:
            continue
        own = best.costs.views(group, best.positions)
        start, end = int(groups.starts[group]), int(groups.starts[group + 1])
        rng = np.random.default_rng((request.seed, group))
        found = anneal_positions(own, end - start, request.seconds * size / sum(sizes.values()), rng)
        positions = best.positions.copy()
        # views count neurons by the position they had
        positions[start:end] = found.best[best.positions[start:end]]
        best.offer(f"annealed group {group}", positions, found.trace, further=True)
