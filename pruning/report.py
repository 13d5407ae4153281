"""A pruned model and its report: layers, loss and how well it is known, times, and quality for each parameter."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import onnx_ir

from ..driver.model_rows import PRUNED_KEY
from ..export.save_model import save_model
from ..sparse.csr import stored_bytes
from .loss_estimates import LossEstimate
from .runs.timing import MeasuredTimes
from .runs.traces import Trace, Weights
from .solve_layers import LayerSolver
from .solving.methods import METHODS
from .solving.structures import Structure

# Trials of each method at some densities: points of a picture of quality against time.

DENSITIES: Final = (0.5, 0.3, 0.15)
"""Densities of all layers alike at which methods are compared."""


class MethodTrial(NamedTuple):
    """A method at a density: the microseconds of a call, and the share of the outputs' variance that is left."""

    method: str
    density: float
    us: float
    quality: float


def method_trials(
    start: Callable[[], Trace],
    weights: Weights,
    structure: Structure,
    judged: Callable[[Weights], float],
    rehearse: Callable[[Mapping[str, float]], MeasuredTimes],
) -> Iterator[MethodTrial]:
    """Yield trials of all methods, whose losses `judged` tells; those at one density take equally long."""
    for density in densities_of(structure):
        densities = dict.fromkeys(weights, density)
        us = rehearse(densities).pruned_us
        for name, method in METHODS.items():
            solver = LayerSolver(start(), weights, method, structure)
            for _ in solver.solve(densities):
                pass
            yield MethodTrial(name, density, us, max(0.0, 1 - judged(solver.weights)))


def densities_of(structure: Structure) -> Sequence[float]:
    """Return the densities that are tried with a structure."""
    return DENSITIES if structure.density is None else (structure.density,)


@dataclass(frozen=True)
class PrunedLayer:
    """One layer: its density, the loss of its own outputs, and its predicted microseconds."""

    name: str
    inputs: int
    outputs: int
    connections: int
    loss: float
    dense_us: float
    predicted_us: float
    measured: MeasuredTimes | None = None
    """The layer alone in onnxruntime, dense and pruned; None where nobody asked."""

    @property
    def density(self) -> float:
        """The share of weights that are left."""
        return self.connections / (self.inputs * self.outputs)


@dataclass(frozen=True)
class PruneReport:
    """A pruned model: what it has lost, and the times of a call."""

    layers: tuple[PrunedLayer, ...]
    estimate: LossEstimate
    inputs: str
    """Names and shapes of the inputs of the call that was measured."""
    rows: int
    """Rows that its first layer got in that call, or images where all layers are convolutions."""
    threads: int
    measured: MeasuredTimes
    rest_us: float | None
    """Microseconds of all that is no layer, found by a rehearsal with as many connections in other places; None where
    the goal was no time."""
    trials: tuple[MethodTrial, ...] = ()
    """Every method at some densities; none where nobody asked."""
    obstacle: str = ""
    """The reason where hardly anything was pruned."""

    @property
    def loss(self) -> float:
        """See `redpebble.pruning.losses`: the best guess, of which `estimate` says how good it is."""
        return self.estimate.loss

    @property
    def parameters(self) -> int:
        """The weights of all layers in the dense model."""
        return sum(layer.inputs * layer.outputs for layer in self.layers)

    @property
    def connections(self) -> int:
        """The weights that are left."""
        return sum(layer.connections for layer in self.layers)

    @property
    def density(self) -> float:
        """The share of weights that are left."""
        return self.connections / self.parameters

    @property
    def predicted_us(self) -> float | None:
        """The microseconds of a call, predicted before any layer was solved; None where the goal was no time."""
        return None if self.rest_us is None else self.rest_us + sum(layer.predicted_us for layer in self.layers)

    @property
    def quality(self) -> float:
        """The share of the outputs' variance that is left."""
        return max(0.0, 1.0 - self.loss)

    @property
    def parameter_efficiency(self) -> float:
        """Share of the outputs' variance that is explained, for each million of connections (Hoefler et al. 2021)."""
        return self.quality / (self.connections / 1e6)

    @property
    def dense_efficiency(self) -> float:
        """The parameter efficiency of the dense model, whose quality is 1."""
        return 1e6 / self.parameters

    @property
    def bytes(self) -> int:
        """The bytes of the weights that kernels read, as floats: of a layer that is nearly dense the dense ones."""
        return round(sum(stored_bytes(layer.connections, layer.inputs * layer.outputs) for layer in self.layers))

    def __str__(self) -> str:
        """Return the sentence that says it."""
        return (
            f"{self.measured.speedup:.2f}x as fast ({self.measured.original_us / 1000:.3g} -> "
            f"{self.measured.pruned_us / 1000:.3g} ms for {self.inputs}), "
            f"{self.density:.1%} of {self.parameters:,} weights left, {self.estimate}"
        )


def state_pruning(model: onnx_ir.Model, report: PruneReport) -> None:
    """Let a model state what it was pruned to: `explain` and `optimize` show it."""
    model.metadata_props[PRUNED_KEY] = (
        f"pruned to {report.density:.1%} of {report.parameters:,} weights, {report.estimate}; quality a million "
        f"weights {report.parameter_efficiency:.3g}, {report.dense_efficiency:.3g} when it was dense"
    )


@dataclass(frozen=True, repr=False)
class Pruned:
    """A pruned model with its report."""

    model: onnx_ir.Model
    report: PruneReport

    def save(self, path: str | os.PathLike[str], *, external_data: bool | None = None) -> None:
        """Write the model to `path`, as `redpebble.optimize(..).save` does.

        Raises:
            OSError: the file cannot be written.
            ValueError: weights of more than 2 GB without a data file.
        """
        save_model(self.model, path, external_data=external_data)

    def __repr__(self) -> str:
        """Return a line."""
        return f"<Pruned: {self.report}>"
