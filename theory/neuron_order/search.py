"""The order of neurons that is predicted to be fastest: orders that are made, then annealing from the best of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.families import FAMILIES
from ...kernels.formats import permute_lookup
from ...kernels.formats.permute_lookup import BLOCK
from ...kernels.layer_with_pattern import LayerWithPattern
from ...kernels.machine import Machine
from ...kernels.prediction import candidates, predicted_us, segment_us
from ...kernels.tile_widths import WIDTHS
from ...kernels.work import Layer
from ...sparse.csr import CsrPattern, Indices
from ...sparse.patterns.similar_rows import nearest_together, similar_rows
from ..annealing.annealing import TracePoint, seconds_left
from .graph_orders import cuthill_mckee_numbers, pass_numbers
from .neuron_groups import GroupedWeight, NeuronGroups
from .swap_annealing import anneal_positions
from .views import View

# Orders of neurons that are made, not searched, and the test that says whether it is worth making them.
#
# An order is given by numbers [neurons] that sort each group.

SAMPLED: Final = 16
"""Rows whose neighbours `locality` counts."""

MOST_LOOKED_AT: Final = 1 << 18
"""Connections that `locality` visits for all sampled rows together."""

SMOOTHINGS: Final = 30
"""Steps of the power iteration of `spectral_numbers`: it starts near its end."""


def locality(rows: CsrPattern, rng: np.random.Generator) -> float:
    """Return how many other rows share an input with a row, over what a random mask of the same counts would give.

    Row r and row s share no input of a random mask with probability exp(-n_s S_r / W), where n are the counts of rows,
    W is their sum, and S_r the number of other readers of r's inputs. 1 is a random mask, less a mask that has an
    order; also 1 where any two rows meet anyway. Time: a few milliseconds.
    """
    counts = rows.lengths
    full = np.flatnonzero(counts > 0)
    if len(full) == 0:
        return 1.0
    readers = rows.transposed()
    chosen = rng.choice(full, min(SAMPLED, len(full)), replace=False)
    owner, inputs = rows.entries(chosen)
    others = np.bincount(owner, readers.lengths[inputs] - 1)
    looked_at = 1 + int(np.searchsorted(np.cumsum(others)[:-1], MOST_LOOKED_AT))
    chosen, others = chosen[:looked_at], others[:looked_at]
    entry, met_rows = readers.entries(inputs[owner < looked_at])
    met = np.zeros((len(chosen), rows.row_count), dtype=np.bool_)
    met[owner[entry], met_rows] = True
    chances = -np.expm1(-counts * (others / len(rows.indices))[:, None])
    expected = float(chances.sum() - chances[np.arange(len(chosen)), chosen].sum())
    return (np.count_nonzero(met) - len(chosen)) / expected if expected > 0 else 1.0


def outgoing_counts(groups: NeuronGroups) -> Indices:
    """Return the connections that leave each neuron, [neurons]."""
    counts = np.zeros(groups.neuron_count, dtype=np.int64)
    for weight in groups.weights:
        # those of all weights at once take more memory than the weights
        counts += np.bincount(weight.inputs.neurons[weight.rows.indices], minlength=groups.neuron_count)
    return counts


def count_numbers(groups: NeuronGroups) -> Indices:
    """Return numbers by which neurons that most connections leave come first."""
    return -outgoing_counts(groups)


def dealt_numbers(groups: NeuronGroups, block: int) -> Indices:
    """Return numbers by which blocks of `block` neurons have about equally many outgoing connections.

    Neurons are dealt to the blocks like cards, those with most connections first, to and fro.
    """
    counts = outgoing_counts(groups)
    numbers = np.empty(groups.neuron_count, dtype=np.int64)
    for group in range(groups.group_count):
        start, end = int(groups.starts[group]), int(groups.starts[group + 1])
        blocks = -(-(end - start) // block)
        turn = np.repeat(np.arange(block)[:, None], blocks, axis=1)
        to = np.where(turn % 2 == 0, np.arange(blocks), np.arange(blocks)[::-1])
        positions = (to * block + turn).ravel()
        members = start + np.argsort(-counts[start:end], kind="stable")
        numbers[members] = positions[positions < end - start]
    return numbers


def support_numbers(groups: NeuronGroups, rng: np.random.Generator) -> Indices:
    """Return numbers by which neurons that read nearly the same come together, else those that are read by the same."""
    numbers = np.arange(groups.neuron_count)
    placed = np.zeros(groups.neuron_count, dtype=np.bool_)
    for weight in groups.weights:
        for neurons, rows in ((weight.outputs.neurons, weight.rows), (weight.inputs.neurons, weight.rows.transposed())):
            rest = np.flatnonzero(~placed[neurons] & (rows.lengths > 0))
            for members in similar_rows(rows, rest, rng):
                together = neurons[nearest_together(rows, members)]
                # all of a class get the number of its first neuron, and a fraction of one by their order
                numbers[together] = together.min()
                placed[together] = True
    return numbers


def spectral_numbers(groups: NeuronGroups, start: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return numbers [neurons] that are, up to what all share, as near as possible to the mean of the neighbours'.

    The power iteration for the second eigenvector of the random walk on the network, from the numbers `start`.
    """
    sources, targets = groups.connections
    count = groups.neuron_count
    degrees = np.bincount(sources, minlength=count) + np.bincount(targets, minlength=count)
    total = max(1, int(degrees.sum()))
    numbers = start.astype(np.float64)
    for _ in range(SMOOTHINGS):
        numbers -= (numbers @ degrees) / total
        sums = np.bincount(sources, weights=numbers[targets], minlength=count)
        sums += np.bincount(targets, weights=numbers[sources], minlength=count)
        numbers = np.where(degrees > 0, 0.5 * (numbers + sums / np.maximum(1, degrees)), numbers)
    return numbers


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
        raise ValueError(f"expected an order of {', '.join(ORDERS)}, got {unknown[0]!r}")
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


# Predicted times of a network's layers under an order of its neurons, and what a search of positions needs of them.

Times = Mapping[int, float]
"""Microseconds by batch."""

SCALE: Final = 1e12
"""Prices are whole numbers: shares of the time of the network in so many parts."""


@dataclass(frozen=True, eq=False)
class OrderCosts:
    """The costs of the weights of `groups`, which `layers` describe but for the order; other layers cost the same."""

    groups: NeuronGroups
    layers: tuple[Layer, ...]
    machine: Machine
    batches: tuple[int, ...]
    _known: dict[tuple[int, bytes], Times] = field(default_factory=dict[tuple[int, bytes], Times])

    def times(self, positions: Indices) -> dict[int, float]:
        """Return the microseconds of all weights together for each batch."""
        per_weight = [self.weight_times(number, positions) for number in range(len(self.layers))]
        return {batch: sum(times[batch] for times in per_weight) for batch in self.batches}

    def weight_times(self, number: int, positions: Indices) -> Times:
        """Return the microseconds of one weight for each batch."""
        weight = self.groups.weights[number]
        key = number, positions[weight.inputs.neurons].tobytes() + positions[weight.outputs.neurons].tobytes()
        if key not in self._known:
            layer = self.ordered(number, positions)
            self._known[key] = {batch: self.fastest(layer, batch)[2] for batch in self.batches}
        return self._known[key]

    def ordered(self, number: int, positions: Indices) -> LayerWithPattern:
        """Return a weight's layer as it is when the neurons have `positions`."""
        layer, rows = self.layers[number], self.groups.weights[number].ordered(positions)
        counts = np.diff(rows.pointers)
        return LayerWithPattern(layer.inputs, counts, layer.other_bytes, layer.stored, layer.panel_reads, rows)

    def fastest(self, layer: Layer, batch: int) -> tuple[str, int, float]:
        """Return the family that is predicted to be the fastest for a batch, its tiles' width, and the microseconds."""
        width = max([width for width in WIDTHS if width <= batch] or WIDTHS[:1])
        families = candidates(layer, width, self.machine)
        times = {family: predicted_us(family, layer, width, self.machine) for family in families}
        best = min(times, key=times.__getitem__)
        return best, width, times[best] * -(-batch // width)

    def views(self, group: int, positions: Indices) -> list[View]:
        """Return how the kernels of all weights read the neurons of a group, with prices in parts of the total time.

        The neurons are numbered by their positions.
        """
        totals = self.times(positions)
        found: list[View] = []
        for number, weight in enumerate(self.groups.weights):
            for start in _starts(weight, self.groups, group):
                layer = self.ordered(number, positions)
                size = int(self.groups.starts[group + 1] - self.groups.starts[group])
                found += self._views_of(layer, start, size, totals)
        return found

    def _views_of(self, layer: LayerWithPattern, start: int, size: int, totals: Times) -> list[View]:
        views: list[View] = []
        rows = layer.rows
        assert rows is not None
        own = _between(rows, start, start + size)
        panels, none = permute_lookup.panels_of(rows), np.zeros(0, dtype=np.int64)
        for batch in self.batches:
            family, width, time = self.fastest(layer, batch)
            tiles = -(-batch // width)
            visits, rule = permute_lookup.visits_of(rows), FAMILIES[family].block_rule
            if FAMILIES[family] is permute_lookup.FAMILY and visits:
                price = permute_lookup.visits_exponent(layer) * time / (2 * visits) / totals[batch] * SCALE
                inputs = permute_lookup.BLOCK
                views.append(View(own, start % inputs, inputs, panels, 1, max(1, round(price))))
            elif rule is not None:
                segment, blocks = rule.most_in_segment, layer.blocks(rule)
                block = -(-layer.inputs // blocks)
                segments = layer.segments(blocks, segment)
                price = tiles * segment_us(family, layer, width, self.machine) / segments / totals[batch] * SCALE
                if blocks > 1:
                    views.append(View(own, start % block, block, none, segment, max(1, round(price))))
        return views


def _starts(weight: GroupedWeight, groups: NeuronGroups, group: int) -> list[int]:
    neurons = weight.inputs.neurons
    return np.unique(weight.inputs.starts[groups.group_of[neurons] == group]).tolist()


def _between(rows: CsrPattern, start: int, end: int) -> CsrPattern:
    """Return the pattern of the inputs from `start` to `end`, counted from `start`."""
    kept = (rows.indices >= start) & (rows.indices < end)
    ends = np.append(0, np.cumsum(kept))
    return CsrPattern(ends[rows.pointers], rows.indices[kept] - start, end - start)
