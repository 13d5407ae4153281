"""Methods, by name: each makes the sparse weights of one layer from its dense ones and the Hessian of its outputs.

magnitude   the smallest weights go (Han et al. 2015)
wanda       the smallest |w| * ||x|| go (Sun et al. 2024, `wanda.py` of torchao)
obs         those with the least w^2 / [H^-1]_ii go, as in optimal brain surgery (Hassibi and Stork 1993), then a refit
sparsegpt   the same, from one input to the next, each weight's error made up by later ones (Frantar and Alistarh 2023,
            `sparsegpt.py` of IST-DASLab)
admm        alternating between the mask and least squares (Boza 2024), then a refit: loses least

A method of one's own is a `Method`, or has a name while `METHODS.extended({"mine": method})` holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...foundation.extensible_table import ExtensibleTable
from .few_bits import Coded, Grid, coded, swept
from .refit import conjugate_gradients, damped, inverse_of, refitted, scaled
from .structures import Mask, Scores, Structure

Array = NDArray[np.float32]

ADMM_STEPS: Final = 10
ADMM_REFIT_STEPS: Final = 8


@dataclass(frozen=True)
class Sparsity:
    """A structure at a density."""

    structure: Structure
    density: float

    def mask(self, scores: Scores) -> Mask:
        """Return a mask for scores [inputs, outputs], which are not negative."""
        return self.structure.choose(scores, self.density)


Solver = Callable[[Array, Array, Sparsity], Array]
"""(weight [inputs, outputs], H = X^T X / rows [inputs, inputs], sparsity) -> the sparse weight."""


CodedSolver = Callable[[Array, Array, Sparsity, Grid], Coded]
"""The same for a weight on a grid."""


@dataclass(frozen=True)
class Method:
    """A solver, and what it makes use of."""

    solve: Solver
    reads_data: bool = True
    """Whether it looks at the Hessian at all."""
    refits: bool = True
    """Whether it changes the weights that stay: then it can make up for what earlier layers have lost."""
    solve_coded: CodedSolver | None = None
    """Prunes and rounds in one sweep; None where the sparse weight is rounded behind it."""

    def codes(self, weight: Array, hessian: Array, sparsity: Sparsity, grid: Grid) -> Coded:
        """Return a sparse weight on a grid; what rounding loses is made up for by other weights."""
        if self.solve_coded is not None:
            return self.solve_coded(weight, hessian, sparsity, grid)
        return coded(self.solve(weight, hessian, sparsity), hessian, grid)


def _magnitude(weight: Array, hessian: Array, sparsity: Sparsity) -> Array:
    del hessian
    return weight * sparsity.mask(weight * weight)


def _wanda(weight: Array, hessian: Array, sparsity: Sparsity) -> Array:
    return weight * sparsity.mask(weight * weight * np.diag(hessian)[:, np.newaxis])


def _obs(weight: Array, hessian: Array, sparsity: Sparsity) -> Array:
    inverse = np.linalg.inv(damped(hessian).astype(np.float64))
    scores = weight * weight / np.diag(inverse)[:, np.newaxis].astype(np.float32)
    return refitted(weight, hessian, sparsity.mask(scores))


def _sparsegpt(weight: Array, hessian: Array, sparsity: Sparsity) -> Array:
    return swept(weight, hessian, lambda scores, _: sparsity.mask(scores), sparsity.structure.window)[0]


def _sparsegpt_coded(weight: Array, hessian: Array, sparsity: Sparsity, grid: Grid) -> Coded:
    return Coded(*swept(weight, hessian, lambda scores, _: sparsity.mask(scores), sparsity.structure.window, grid))


def _admm(weight: Array, hessian: Array, sparsity: Sparsity) -> Array:
    layer = scaled(weight, hessian)
    size = len(layer.hessian)
    penalty = np.float32(1.0)
    matrix = layer.hessian.copy()
    matrix[np.diag_indices(size)] += penalty
    inverse = inverse_of(matrix)
    del matrix
    constant = inverse @ (layer.hessian @ layer.weight)
    dual, solution = np.zeros_like(layer.weight), layer.weight
    projected, mask = solution, np.ones(solution.shape, dtype=np.bool_)
    for _ in range(ADMM_STEPS):
        mask = sparsity.mask((solution + dual) ** 2)
        projected = (solution + dual) * mask
        dual += solution - projected
        solution = constant + penalty * (inverse @ (projected - dual))
    return conjugate_gradients(layer, mask, projected, ADMM_REFIT_STEPS) / layer.scale


METHODS: Final = ExtensibleTable[str, Method](
    {
        "admm": Method(_admm),
        "sparsegpt": Method(_sparsegpt, solve_coded=_sparsegpt_coded),
        "obs": Method(_obs),
        "wanda": Method(_wanda, refits=False),
        "magnitude": Method(_magnitude, reads_data=False, refits=False),
    }
)


def method_of(name: str) -> Method:
    """Return the method of a name.

    Raises:
        ValueError: there is none.
    """
    if name not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {name!r}")
    return METHODS[name]
