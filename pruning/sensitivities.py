"""Losses of the model for each density of each layer, if no other layer is pruned.

The loss of a layer's own outputs is known for all densities from its Hessian. Two runs of the rest of the model, at a
high and at a low density, say what share of it arrives at the outputs; in between that share is interpolated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .layers import PrunableLayer, Reading
from .losses import Loss
from .runs.hessians import layer_inputs
from .runs.traces import Trace, Weights
from .solving.methods import Method, Sparsity
from .solving.refit import damped, inverse_of, mean_square, refitted
from .solving.structures import Structure

Array = NDArray[np.float32]

PROBES: Final = (0.4, 0.12)
"""Densities, about, at which the rest of the model runs."""

PROBE_ROWS: Final = 2048
"""Rows of the first layer that run through the rest of the model: two runs a layer are most of the time."""

QUICK_STEPS: Final = 3

SOLVED: Final = 4
"""Densities of a layer that are solved for."""

LEAST: Final = 1e-12


@dataclass(frozen=True)
class LossCurve:
    """Losses of the model by density of one layer, densities descending."""

    densities: tuple[float, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True)
class Probe:
    """A way to prune, and to tell what it costs: sensitivities are measured with it."""

    method: Method
    structure: Structure
    loss: Loss
    densities_of: Callable[[PrunableLayer], Sequence[float]]
    """The densities that a layer may have, descending."""


def loss_curves(
    fitted: Trace, judged: Trace, weights: Weights, probe: Probe
) -> Iterator[tuple[PrunableLayer, LossCurve]]:
    """Yield each layer with its losses, in the order of the model, pruned for one run and judged by another.

    Both are at the start.
    """
    few, others = (trace.branch(few_batches(trace.batches)) for trace in (fitted, judged))
    expected = others.branch().finish(weights)
    while not few.is_over:
        inputs: dict[Reading, _Inputs] = {}
        for layer in few.model.segments[few.done].layers:
            densities = probe.densities_of(layer)
            if densities:
                if layer.reading not in inputs:
                    inputs[layer.reading] = _Inputs.of(layer_inputs(layer, few, None).hessian, probe.method)
                known, weight, hessian = some_of(densities), weights[layer.name], inputs[layer.reading].hessian
                pruned = dict(_quickly_pruned(weight, inputs[layer.reading], known, probe))
                whole = max(mean_square(weight, hessian), LEAST)
                own = {one: max(mean_square(pruned[one] - weight, hessian) / whole, LEAST) for one in known}
                shares = dict[float, float]()
                for density in nearest_of(known):
                    outputs = others.branch().finish({**weights, layer.name: pruned[density]})
                    shares[density] = float(probe.loss(outputs, expected).mean()) / own[density]
                losses = interpolated(densities, own) * interpolated(densities, shares)
                yield layer, LossCurve(tuple(densities), tuple(losses))
        few.advance(weights)
        others.advance(weights)


def few_batches(batches: Sequence[Mapping[str, NDArray[Any]]]) -> int:
    """Return how many batches have rows enough to tell losses: whole numbers are a row each, other values features."""
    rows = np.cumsum(
        [
            max(value.size // (value.shape[-1] if value.dtype.kind == "f" else 1) for value in batch.values())
            for batch in batches
        ]
    )
    return int(np.searchsorted(rows, PROBE_ROWS)) + 1


class _Inputs(NamedTuple):
    """The Hessian of layers that read the same value, and the diagonal of its inverse where the method needs it."""

    hessian: Array
    diagonal: Array | None

    @staticmethod
    def of(hessian: Array, method: Method) -> "_Inputs":
        return _Inputs(hessian, np.diag(inverse_of(damped(hessian)))[:, np.newaxis] if method.refits else None)


def _quickly_pruned(
    weight: Array, inputs: _Inputs, densities: Sequence[float], probe: Probe
) -> Iterator[tuple[float, Array]]:
    for density in densities:
        sparsity = Sparsity(probe.structure, density)
        if inputs.diagonal is None:
            yield density, probe.method.solve(weight, inputs.hessian, sparsity)
            continue
        mask = sparsity.mask(np.divide(np.square(weight), inputs.diagonal, dtype=np.float32))
        yield density, refitted(weight, inputs.hessian, mask, QUICK_STEPS)


def some_of(densities: Sequence[float]) -> list[float]:
    """Return a few of the densities, first and last among them: the rest is interpolated."""
    chosen = np.linspace(0, len(densities) - 1, min(len(densities), SOLVED)).round()
    return [densities[int(index)] for index in chosen]


def nearest_of(densities: Sequence[float]) -> list[float]:
    """Return the densities among those given that are nearest to the probes, each once."""
    return list(dict.fromkeys(min(densities, key=lambda one: abs(np.log(one / probe))) for probe in PROBES))


def interpolated(densities: Sequence[float], values: Mapping[float, float]) -> NDArray[np.float64]:
    """Return positive values for all densities: geometric between those known, and like them beyond."""
    known = sorted(values)
    logs = np.log(np.maximum([values[density] for density in known], LEAST))
    return np.exp(np.interp(np.log(densities), np.log(known), logs))
