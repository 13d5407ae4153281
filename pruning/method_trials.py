"""Trials of each method at some densities: points of a picture of quality against time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from .runs.timing import MeasuredTimes
from .runs.traces import Trace, Weights
from .solve_layers import LayerSolver
from .solving.methods import METHODS
from .solving.structures import Structure

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
