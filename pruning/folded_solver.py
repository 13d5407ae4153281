"""Layers for any densities, and what samples lose by weights that were not fitted to them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..foundation.log import LOG
from ..runtime.memory import return_free_memory
from .losses import Loss, Losses, Outputs
from .runs.folds import Split
from .runs.segments import SegmentedModel
from .runs.traces import Trace, Weights
from .solve_layers import LayerSolver, SolvedLayer
from .solving.few_bits import Grid
from .solving.methods import Method
from .solving.structures import Structure

Densities = Mapping[str, float]


@dataclass(frozen=True)
class Fit:
    """Layers that were solved on one part of the data, and losses of the samples of the other part."""

    layers: Mapping[str, SolvedLayer]
    losses: Losses


@dataclass
class FoldedSolver:
    """A model solved on folds of its data; `watch` is told what is done, how many layers of it are, and of how many."""

    segmented: SegmentedModel
    dense: Weights
    split: Split
    method: Method
    structure: Structure
    loss: Loss
    watch: Callable[[str, int, int], None]
    grid: Grid | None = None
    """The values that weights may have."""
    _trials: dict[tuple[float, ...], Fit] = field(default_factory=dict[tuple[float, ...], Fit], repr=False)

    def trial(self, densities: Densities) -> Fit:
        """Return the fit of the first fold; those of the last two densities are remembered.

        Raises:
            ValueError: a layer gets too few rows, or NaN or infinity.
        """
        key = tuple(densities.values())
        if key not in self._trials:
            # each holds all weights
            self._trials = dict(list(self._trials.items())[-1:])
            self._trials[key] = self._fit(densities, 0)
        return self._trials[key]

    def layers(self, densities: Densities) -> Mapping[str, SolvedLayer]:
        """Return the layers of the result, fitted to all samples that are not held out.

        Raises:
            ValueError: as `trial`.
        """
        if len(self.split.folds) == 1:
            return self.trial(densities).layers
        start = Trace.start(self.segmented, self.split.whole)
        return self._solved(
            LayerSolver(start, self.dense, self.method, self.structure, grid=self.grid), densities, "pruning"
        )

    def losses(self, densities: Densities) -> Losses:
        """Return the losses of samples, each by weights that were not fitted to it if folds hold samples out.

        Raises:
            ValueError: as `trial`.
        """
        others = range(1, len(self.split.folds))
        return np.concatenate([self.trial(densities).losses, *(self._fit(densities, one).losses for one in others)])

    def judged(self, weights: Weights, fold: int = 0) -> Losses:
        """Return the losses of the samples that a fold holds out."""
        found = Trace.start(self.segmented, self.split.folds[fold].judged).finish(weights)
        return self.loss(found, self._expected[fold])

    @cached_property
    def _expected(self) -> list[Outputs]:
        """The outputs of the dense model for the samples that are left out, by fold."""
        return [Trace.start(self.segmented, fold.judged).finish(self.dense) for fold in self.split.folds]

    def _fit(self, densities: Densities, fold: int) -> Fit:
        folds = len(self.split.folds)
        start = Trace.start(self.segmented, self.split.folds[fold].fitted)
        # enough rows of all the data are enough: it is what the weights of the result are fitted to
        whole = folds / (folds - 1) if folds > 1 else 1.0
        solver = LayerSolver(start, self.dense, self.method, self.structure, whole, self.grid)
        what = "pruning" if folds == 1 else f"pruning without part {fold + 1} of {folds}"
        return Fit(self._solved(solver, densities, what), self.judged(solver.weights, fold))

    def _solved(self, solver: LayerSolver, densities: Densities, what: str) -> Mapping[str, SolvedLayer]:
        layers: dict[str, SolvedLayer] = {}
        total = sum(density < 1 for density in densities.values())
        for one in solver.solve(densities):
            layers[one.layer.name] = one
            LOG.info("%s %d of %d: %s loses %.2f %% alone", what, len(layers), total, one.layer.name, 100 * one.loss)
            return_free_memory()
            self.watch(what, len(layers), total)
        return layers
