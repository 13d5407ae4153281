"""Densities of all layers for a goal, found with a model and its data at hand: its losses, its prices and the clock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..driver.model_rows import state_rows
from ..runtime.memory import return_free_memory
from .budgets import Allocation, Option, densities_of, options_of, sparsest, uniform, within_loss, within_time
from .folded_solver import FoldedSolver
from .layer_prices import LayerPrices
from .layers import PrunableLayer
from .measured_prices import measured_corrections
from .options import PruneOptions
from .runs.layer_times import LayerClock
from .runs.timing import MeasuredTimes, ModelClock
from .runs.traces import Trace
from .sensitivities import LossCurve, Probe, loss_curves
from .solving.methods import METHODS, Sparsity
from .source_model import SourceModel

Array = NDArray[np.float32]

LOSS_ROUNDS: Final = 4
"""Times that all layers are solved until a loss is kept: losses of layers do not quite add up."""

LITTLE_PRUNED: Final = 0.9
"""Share of the weights that is left from which on it is said why."""


@dataclass
class DensityChoice:
    """The choice of densities, by what a model loses and how long it takes; `rows` are those that it states."""

    model: SourceModel
    options: PruneOptions
    solver: FoldedSolver
    prices: LayerPrices
    clock: ModelClock
    layer_clock: LayerClock
    rows: int
    watch: Callable[[str, int, int], None]
    _rehearsals: dict[tuple[float, ...], MeasuredTimes] = field(
        default_factory=dict[tuple[float, ...], MeasuredTimes], repr=False
    )

    def allocation(self) -> Allocation:
        """Return a density for each layer.

        Raises:
            ValueError: the goal is out of reach, or not that of the structure.
        """
        goal, structure = self.options.goal, self.options.chosen_structure
        if goal.measure == "sparsity":
            density = 1 - goal.value if structure.density is None else structure.density
            if abs(density - (1 - goal.value)) > 1e-6:
                raise ValueError(f"sparsity is {goal.value}, expected {1 - density:g}, that of the structure")
            curve = LossCurve((density,), (0.0,))
            return Allocation({one.name: options_of(one, curve, self.prices)[1] for one in self.model.layers})
        if goal.measure == "loss":
            # the clock has no say: the same data gives the same densities
            return self._within_loss()
        return self._within_time()

    def _options(self) -> dict[str, list[Option]]:
        """Return the options of all layers, with what the model loses by each alone."""
        curves = self._curves()
        return {one.name: options_of(one, curves.get(one.name), self.prices) for one in self.model.layers}

    def _within_loss(self) -> Allocation:
        """Return the densities of the shortest time that keep a loss, as close to it as a few rounds come."""
        goal, options = self.options.goal.value, self._options()
        best, asked = Allocation({name: some[0] for name, some in options.items()}), goal
        for _ in range(LOSS_ROUNDS):
            allocation = within_loss(options, asked)
            loss = float(self.solver.losses(allocation.densities).mean())
            if loss <= goal and allocation.layers_us < best.layers_us:
                best = allocation
            if 0.9 * goal <= loss <= goal:
                break
            asked *= 0.97 * goal / max(loss, 0.1 * goal)
        return best

    def _within_time(self) -> Allocation:
        """Return the densities that lose least in a time: those weighed by layer, or the same one for all layers.

        Raises:
            ValueError: the time is out of reach.
        """
        goal, structure = self.options.goal, self.options.chosen_structure

        def wanted_us() -> float:
            return 1000 * goal.value if goal.measure == "time" else self.clock.original_us / goal.value

        self.clock.measure_original()
        # what is out of reach is refused before anything that takes long
        free = {one.name: options_of(one, self._free_curve(one), self.prices) for one in self.model.layers}
        sparsest(free, self.rehearse, wanted_us)
        found = measured_corrections(self.model.layers, structure, self.prices, self.layer_clock, self.watch)
        self.prices.correct(found)
        options = self._options()
        weighed = within_time(options, wanted_us, self.rehearse, [sparsest(options, self.rehearse, wanted_us)])
        alike = within_time(options, wanted_us, self.rehearse, [weighed], uniform)
        return min(
            (weighed.allocation, alike.allocation), key=lambda one: self.solver.trial(one.densities).losses.mean()
        )

    def _free_curve(self, layer: PrunableLayer) -> LossCurve:
        """Return the densities of a layer, as if they lost nothing."""
        densities = tuple(densities_of(layer, self.options.chosen_structure, self.prices))
        return LossCurve(densities, (0.0,) * len(densities))

    def _curves(self) -> dict[str, LossCurve]:
        structure = self.options.chosen_structure
        probe = Probe(
            self.options.chosen_method,
            structure,
            self.solver.loss,
            lambda layer: densities_of(layer, structure, self.prices),
        )
        found: dict[str, LossCurve] = {}
        fitted, judged = (Trace.start(self.solver.segmented, some) for some in self.solver.split.folds[0])
        for number, (layer, curve) in enumerate(loss_curves(fitted, judged, self.model.dense, probe), 1):
            found[layer.name] = curve
            return_free_memory()
            self.watch("measuring what each layer loses", number, len(self.model.layers))
        return found

    def rehearse(self, densities: Mapping[str, float]) -> MeasuredTimes:
        """Return the times with as many connections as these densities leave: which ones hardly matters."""
        key = tuple(densities.values())
        if key not in self._rehearsals:
            self.watch("rehearsing", len(self._rehearsals), len(self._rehearsals) + 1)
            self._rehearsals[key] = self._rehearsed(densities)
        return self._rehearsals[key]

    def _rehearsed(self, densities: Mapping[str, float]) -> MeasuredTimes:
        structure, magnitude = self.options.chosen_structure, METHODS["magnitude"]
        weights: dict[str, Array] = {
            name: magnitude.solve(self.model.dense[name], np.zeros((0, 0), np.float32), Sparsity(structure, density))
            for name, density in densities.items()
            if density < 1
        }
        model = self.model.with_weights(weights)
        state_rows(model, self.rows)
        found = self.clock.times(model)
        return_free_memory()
        return found

    def obstacle(self, allocation: Allocation) -> str:
        """Return why a loss left nearly all weights where they were; nothing where it did not."""
        sizes = {layer.name: layer.size for layer in self.model.layers}
        left = sum(size * allocation.densities[name] for name, size in sizes.items()) / sum(sizes.values())
        if self.options.goal.measure != "loss" or left < LITTLE_PRUNED:
            return ""
        gaining = [one for one in self.model.layers if densities_of(one, self.options.chosen_structure, self.prices)]
        if not gaining:
            return "no layer is predicted to become faster by zeros"
        share = min(1.0, sum(map(self.prices.dense_us, gaining)) / self.clock.original_us)
        return (
            f"zeros are predicted to make {len(gaining)} of {len(sizes)} layers faster, which take {share:.0%} of the "
            f"time; more of them would lose more than {self.options.goal.value:.2%}"
        )
