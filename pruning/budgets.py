"""Densities of all layers for a goal: the time of a call, or a loss."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .layer_prices import GRID, LayerPrices
from .layers import PrunableLayer
from .runs.timing import MeasuredTimes
from .sensitivities import LossCurve
from .solving.structures import Structure

# Densities of all layers that lose least within a time, each from the options that it has.
#
# Losses of layers are taken to add up, and so are their times: a multiple-choice knapsack, solved exactly by dynamic
# programming over times in equal steps (SPDY, Frantar and Alistarh 2022, allocates in the same way by measured times).

STEPS: Final = 4000
"""Steps of the time: an allocation wastes less than one a layer."""


class Option(NamedTuple):
    """One density that a layer may have, 1 where it stays dense."""

    density: float
    us: float
    loss: float


def allocated(layers: Sequence[Sequence[Option]], budget_us: float) -> list[Option] | None:
    """Return an option for each layer, of least loss in all, that take no longer than the budget; None if none do."""
    fastest = [min(options, key=lambda option: (option.us, option.loss)) for options in layers]
    if sum(option.us for option in fastest) > budget_us:
        return None
    unit = budget_us / STEPS
    lost, choices = np.zeros(STEPS + 1), list[NDArray[np.int64]]()
    for options in layers:
        costs = [_steps(option.us, unit) for option in options]
        totals = np.full((len(options), STEPS + 1), np.inf)
        for row, (option, cost) in enumerate(zip(options, costs, strict=True)):
            if cost <= STEPS:
                totals[row, cost:] = lost[: STEPS + 1 - cost] + option.loss
        choices.append(totals.argmin(axis=0))
        lost = totals.min(axis=0)
    if not np.isfinite(lost[STEPS]):
        return fastest  # only rounding stands between these and the budget
    left, found = STEPS, list[Option]()
    for options, choice in zip(reversed(layers), reversed(choices), strict=True):
        option = options[int(choice[left])]
        found.append(option)
        left -= _steps(option.us, unit)
    return found[::-1]


def _steps(us: float, unit: float) -> int:
    return ceil(us / unit)


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


@dataclass(frozen=True)
class Rehearsal:
    """Densities that were tried, and the measured microseconds."""

    allocation: Allocation
    us: float


Rehearse = Callable[[Mapping[str, float]], MeasuredTimes]
Layers = Sequence[Sequence[Option]]
Chooser = Callable[[Layers, float], list[Option] | None]
"""(options of all layers, microseconds) -> an option for each layer that takes no longer; None where none do."""


def uniform(layers: Layers, budget_us: float) -> list[Option] | None:
    """Return one density for all layers that gain by it, the highest within the budget."""
    for density in sorted({option.density for options in layers for option in options}, reverse=True):
        found = [next((one for one in options if one.density == density), options[0]) for options in layers]
        if sum(option.us for option in found) <= budget_us:
            return found
    return None


def rehearsed(allocation: Allocation, rehearse: Rehearse) -> Rehearsal:
    """Return a rehearsal of densities."""
    us = rehearse(allocation.densities).pruned_us
    return Rehearsal(replace(allocation, rest_us=us - allocation.layers_us), us)


def sparsest(options: Mapping[str, Sequence[Option]], rehearse: Rehearse, wanted_us: Callable[[], float]) -> Rehearsal:
    """Return the rehearsal of what is fastest.

    Raises:
        ValueError: it takes longer than is wanted.
    """
    found = Allocation({name: min(some, key=lambda option: option.us) for name, some in options.items()})
    times = rehearse(found.densities)
    if times.pruned_us > TOO_SLOW * wanted_us():
        raise ValueError(
            f"expected {times.pruned_us / 1000:.3g} ms ({times.speedup:.2f}x as fast) or more, the time at the "
            f"lowest densities, got {wanted_us() / 1000:.3g} ms"
        )
    return Rehearsal(replace(found, rest_us=times.pruned_us - found.layers_us), times.pruned_us)


def within_time(
    options: Mapping[str, Sequence[Option]],
    wanted_us: Callable[[], float],
    rehearse: Rehearse,
    known: Sequence[Rehearsal],
    choose: Chooser = allocated,
) -> Rehearsal:
    """Return the densities that lose least in a time, which `rehearse` measures for any densities.

    One or more rehearsals are known, of which one is fast enough: the first budget is what they say is left for layers.
    """
    tried = list(known)
    for _ in range(REHEARSALS):
        allocation = _untried(options, tried, wanted_us(), choose)
        if allocation is None:
            break
        tried.append(rehearsed(allocation, rehearse))
        if TOO_FAST <= tried[-1].us / wanted_us() <= TOO_SLOW:
            break
    enough = [[one for one in some if one.us <= TOO_SLOW * wanted_us()] for some in (tried[len(known) :], tried)]
    return min(enough[0] or enough[1] or tried, key=lambda one: one.allocation.loss)


def _untried(
    options: Mapping[str, Sequence[Option]], tried: Sequence[Rehearsal], wanted_us: float, choose: Chooser
) -> Allocation | None:
    """Return the next densities, None where all between the closest ones on both sides were tried."""
    budget = _rounded(_next_budget(tried, wanted_us))
    slower = [one.allocation.layers_us for one in tried if one.us > TOO_SLOW * wanted_us]
    most = min(slower, default=sum(some[0].us for some in options.values()))
    while (chosen := choose(list(options.values()), budget)) is not None:
        found = Allocation(dict(zip(options, chosen, strict=True)))
        known = next((one for one in tried if one.allocation.options == found.options), None)
        if known is None:
            return found
        if known.us > TOO_SLOW * wanted_us or budget > most:
            return None
        # time is left, and losing more than it asks for is no answer
        budget *= GRAIN
    return None


def _next_budget(tried: Sequence[Rehearsal], wanted_us: float) -> float:
    """Return microseconds for all layers: between the closest on both sides of what is wanted, where both are known."""
    aim, found = (
        WANTED * wanted_us,
        time_between([(one.allocation.layers_us, one.us) for one in tried], WANTED * wanted_us),
    )
    if found is not None:
        return found
    closest = min(tried, key=lambda one: abs(one.us - aim))
    return closest.allocation.layers_us + aim - closest.us


def time_between(tried: Sequence[tuple[float, float]], wanted_us: float) -> float | None:
    """Return the predicted time to try next, between those whose measured ones are closest on both sides of a time.

    `tried` are predicted and measured times in the order of their trials. The next one lies on a line through the
    logarithms; in the middle where the last two trials came from one side, as they do where the measured time jumps.
    None where all are on one side.
    """
    faster, slower = [one for one in tried if one[1] <= wanted_us], [one for one in tried if one[1] > wanted_us]
    if not faster or not slower:
        return None
    below, above = max(faster, key=lambda one: one[1]), min(slower, key=lambda one: one[1])
    if min(below) <= 0 or above[0] <= 0:
        return (below[0] + above[0]) / 2
    sides = [one[1] <= wanted_us for one in tried[-2:]]
    is_stuck = len(tried) > 2 and sides[0] == sides[1]
    share = 0.5 if is_stuck else log(wanted_us / below[1]) / log(above[1] / below[1])
    return below[0] * (above[0] / below[0]) ** share


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
