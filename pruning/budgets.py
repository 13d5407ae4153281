"""Densities of all layers for a goal: the time of a call, or a loss."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, log
from typing import Final, NamedTuple

from redpebble.pruning.allocation import Option, allocated
from redpebble.pruning.layer_prices import GRID, LayerPrices
from redpebble.pruning.layers import PrunableLayer
from redpebble.pruning.runs.timing import MeasuredTimes
from redpebble.pruning.sensitivities import LossCurve
from redpebble.pruning.solving.structures import Structure

REHEARSALS: Final = 6
TOO_SLOW: Final = 1.02
"""Measured over wanted time of a rehearsal above which densities are chosen once more."""

TOO_FAST: Final = 0.95
"""The same below which they are."""

WANTED: Final = 0.98
"""The same that the next densities are chosen for."""

GRAIN: Final = 1.02
"""Ratio of one budget to the next: the clock's noise should not change the outcome."""


@dataclass(frozen=True)
class Allocation:
    """A density for each layer by name."""

    options: Mapping[str, Option]
    rest_us: float | None = None
    """The microseconds of all that is no layer; None where nothing was rehearsed."""

    @property
    def layers_us(self) -> float:
        """The predicted microseconds of all layers."""
        return sum(option.us for option in self.options.values())

    @property
    def loss(self) -> float:
        """The losses of all layers, as if they added up."""
        return sum(option.loss for option in self.options.values())

    @property
    def densities(self) -> dict[str, float]:
        """The densities by layer."""
        return {name: option.density for name, option in self.options.items()}


def densities_of(layer: PrunableLayer, structure: Structure, prices: LayerPrices) -> list[float]:
    """Return the densities that make a layer faster, descending: one that stays dense would lose for nothing."""
    grid = sorted(GRID if structure.density is None else (structure.density,), reverse=True)
    return [density for density in grid if prices.sparse_us(layer, density) is not None]


def options_of(layer: PrunableLayer, curve: LossCurve | None, prices: LayerPrices) -> list[Option]:
    """Return the options of a layer, to stay dense among them."""
    dense = Option(1.0, prices.dense_us(layer), 0.0)
    if curve is None:
        return [dense]
    points = zip(curve.densities, curve.losses, strict=True)
    return [dense, *(Option(one, prices.sparse_us(layer, one) or dense.us, loss) for one, loss in points)]


class _Rehearsal(NamedTuple):
    """Densities that were tried, and their measured over the wanted time."""

    allocation: Allocation
    slowness: float

    @property
    def is_fast_enough(self) -> bool:
        return self.slowness <= TOO_SLOW


def within_time(
    options: Mapping[str, Sequence[Option]],
    original_us: float,
    wanted_us: Callable[[], float],
    rehearse: Callable[[Mapping[str, float]], MeasuredTimes],
) -> Allocation:
    """Return the densities that lose least in a time, which `rehearse` measures for any densities.

    The original takes `original_us`; until something was rehearsed its layers are taken to have the same share of the
    time when they are pruned.

    Raises:
        ValueError: no densities are fast enough.
    """
    sparsest = {name: min(some, key=lambda option: option.us) for name, some in options.items()}
    dense_us = sum(some[0].us for some in options.values())
    budget, tried = wanted_us() * dense_us / original_us, list[_Rehearsal]()
    for _ in range(REHEARSALS):
        chosen = allocated(list(options.values()), _rounded(budget))
        allocation = Allocation(sparsest if chosen is None else dict(zip(options, chosen, strict=True)))
        if any(one.allocation.options == allocation.options for one in tried):
            break
        found = rehearse(allocation.densities)
        wanted = wanted_us()
        allocation = replace(allocation, rest_us=found.pruned_us - allocation.layers_us)
        tried.append(_Rehearsal(allocation, found.pruned_us / wanted))
        if not tried[-1].is_fast_enough and allocation.options == sparsest:
            raise ValueError(
                f"{wanted / 1000:.3g} ms is out of reach, accepted is {found.pruned_us / 1000:.3g} ms "
                f"({found.speedup:.2f}x as fast) or more: so long the model takes at the lowest densities"
            )
        if TOO_FAST <= tried[-1].slowness <= TOO_SLOW:
            break
        budget = _next_budget(tried, wanted)
    enough = [one for one in tried if one.is_fast_enough]
    best = min(enough, key=lambda one: one.allocation.loss) if enough else min(tried, key=lambda one: one.slowness)
    return best.allocation


def _next_budget(tried: Sequence[_Rehearsal], wanted: float) -> float:
    """Return microseconds for all layers: between the closest on both sides of what is wanted, where both are known."""
    faster = [one for one in tried if one.slowness <= WANTED]
    slower = [one for one in tried if one.slowness > WANTED]
    if not faster or not slower:
        return tried[-1].allocation.layers_us + (WANTED - tried[-1].slowness) * wanted
    below, above = max(faster, key=lambda one: one.slowness), min(slower, key=lambda one: one.slowness)
    share = (WANTED - below.slowness) / (above.slowness - below.slowness)
    return below.allocation.layers_us + share * (above.allocation.layers_us - below.allocation.layers_us)


def within_loss(options: Mapping[str, Sequence[Option]], loss: float) -> Allocation:
    """Return the densities of the shortest time whose losses add up to no more than `loss`."""
    most = sum(max(option.us for option in some) for some in options.values())
    chosen, budget = [some[0] for some in options.values()], most
    while (found := allocated(list(options.values()), budget)) is not None:
        if sum(option.loss for option in found) > loss:
            break
        chosen, budget = found, budget / GRAIN
    return Allocation(dict(zip(options, chosen, strict=True)))


def _rounded(us: float) -> float:
    return GRAIN ** floor(log(us) / log(GRAIN)) if us > 0 else 1e-9
