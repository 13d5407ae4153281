"""Densities of all layers for a goal: the time of a call, or a loss."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, log
from typing import Final

from redpebble.pruning.allocation import Option, allocated
from redpebble.pruning.layer_prices import GRID, LayerPrices
from redpebble.pruning.layers import PrunableLayer
from redpebble.pruning.runs.timing import MeasuredTimes
from redpebble.pruning.sensitivities import LossCurve
from redpebble.pruning.solving.structures import Structure

REHEARSALS: Final = 4
TOO_SLOW: Final = 1.02
"""Measured over wanted time of a rehearsal above which densities are chosen once more."""

TOO_FAST: Final = 0.94
"""The same below which they are."""

GRAIN: Final = 1.02
"""Ratio of one budget to the next: the clock's noise should not change the outcome."""


@dataclass(frozen=True)
class Allocation:
    """A density for each layer by name, and the microseconds of all that is no layer."""

    options: Mapping[str, Option]
    rest_us: float

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


def within_time(
    options: Mapping[str, Sequence[Option]],
    wanted_us: Callable[[MeasuredTimes | None], float],
    rehearse: Callable[[Mapping[str, float]], MeasuredTimes],
) -> Allocation:
    """Return the densities that lose least in a time, which `rehearse` measures for any densities.

    What is wanted may depend on what was measured, if anything was yet.

    Raises:
        ValueError: no densities are fast enough.
    """
    sparsest = [min(some, key=lambda option: option.us) for some in options.values()]
    wanted, rest = wanted_us(None), 0.0
    allocation = Allocation({}, rest)
    for attempt in range(REHEARSALS):
        chosen = allocated(list(options.values()), _rounded(wanted - rest)) or sparsest
        allocation = Allocation(dict(zip(options, chosen, strict=True)), rest)
        found = rehearse(allocation.densities)
        wanted, rest = wanted_us(found), found.pruned_us - allocation.layers_us
        if chosen == sparsest and attempt and found.pruned_us > TOO_SLOW * wanted:
            raise ValueError(
                f"{wanted / 1000:.3g} ms is out of reach, accepted is {found.pruned_us / 1000:.3g} ms "
                f"({found.speedup:.2f}x as fast) or more: so long the model takes at the lowest densities"
            )
        if TOO_FAST <= found.pruned_us / wanted <= TOO_SLOW:
            break
    return replace(allocation, rest_us=rest)


def within_loss(options: Mapping[str, Sequence[Option]], loss: float) -> Allocation:
    """Return the densities of the shortest time whose losses add up to no more than `loss`."""
    most = sum(max(option.us for option in some) for some in options.values())
    chosen, budget = [some[0] for some in options.values()], most
    while (found := allocated(list(options.values()), budget)) is not None:
        if sum(option.loss for option in found) > loss:
            break
        chosen, budget = found, budget / GRAIN
    return Allocation(dict(zip(options, chosen, strict=True)), 0.0)


def _rounded(us: float) -> float:
    return GRAIN ** floor(log(us) / log(GRAIN)) if us > 0 else 1e-9
