"""Least squares for the weights that a mask leaves: all outputs at once, by conjugate gradients.

The loss of weights V [inputs, outputs] in place of W is trace((V - W)^T H (V - W)) with H = X^T X / rows, which is the
mean square by which the layer's outputs move, summed over them.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import spotri

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]

DAMPING: Final = 0.01
"""Share of the mean of H's diagonal that is added to it, as SparseGPT does."""

REFIT_STEPS: Final = 10


class Scaled(NamedTuple):
    """A layer with inputs scaled to a mean square of one, and a damped Hessian: a diagonal that is all the same."""

    weight: Array
    hessian: Array
    scale: Array
    """[inputs, 1]: what the weight was multiplied by."""


def damped(hessian: Array, damping: float = DAMPING) -> Array:
    """Return a Hessian that can be inverted; an input that is always zero gets the mean of the others."""
    diagonal = np.diag(hessian).astype(np.float64)
    mean = float(diagonal.mean()) or 1.0
    more = np.where(diagonal == 0, mean, 0.0) + damping * mean
    result = hessian.copy()
    result[np.diag_indices(len(result))] += more.astype(np.float32)
    return result


def scaled(weight: Array, hessian: Array) -> Scaled:
    """Return a layer with scaled inputs."""
    matrix = damped(hessian)
    scale = np.sqrt(np.diag(matrix))[:, np.newaxis]
    inverse = np.reciprocal(scale)
    matrix *= inverse
    matrix *= inverse.T
    return Scaled(weight * scale, matrix, scale)


def refitted(weight: Array, hessian: Array, mask: Mask, steps: int = REFIT_STEPS) -> Array:
    """Return weights inside a mask that lose least in place of `weight`, about."""
    layer = scaled(weight, hessian)
    return conjugate_gradients(layer, mask, layer.weight * mask, steps) / layer.scale


def conjugate_gradients(layer: Scaled, mask: Mask, start: Array, steps: int) -> Array:
    """Return the weights of a scaled layer after so many steps from `start`, which is inside the mask."""
    solution = start.copy()
    inside = mask.astype(np.float32)
    residual = inside * (layer.hessian @ (layer.weight - solution))
    direction = residual
    square = _dots(residual, residual)
    for _ in range(steps):
        product = inside * (layer.hessian @ direction)
        length = _quotient(square, _dots(direction, product))
        solution += length * direction
        residual = residual - length * product
        before, square = square, _dots(residual, residual)
        direction = residual + _quotient(square, before) * direction
    return solution


def loss_of(weight: Array, pruned: Array, hessian: Array) -> float:
    """Return the mean square by which outputs move, over the mean square of the outputs."""
    return mean_square(pruned - weight, hessian) / max(mean_square(weight, hessian), 1e-30)


def mean_square(weight: Array, hessian: Array) -> float:
    """Return the mean square of a layer's outputs, summed over them."""
    return float((weight * (hessian @ weight)).sum(dtype=np.float64))


def inverse_of(matrix: Array) -> Array:
    """Return the inverse of a symmetric matrix, by its Cholesky factor where it has one: a fifth of the time."""
    try:
        factor, _ = cho_factor(matrix)
    except LinAlgError:
        return np.linalg.inv(matrix)
    # a wide layer's matrices are larger than its weights: none is copied that need not be
    inverse, _ = spotri(factor, overwrite_c=True)
    for row in range(1, len(inverse)):
        inverse[row, :row] = inverse[:row, row]
    return inverse


def moved_target(weight: Array, hessian: Array, crossed: Array) -> Array:
    """Return the weights that bring new inputs closest to the outputs that `weight` makes of the original ones.

    `hessian` is that of the new inputs, X^T X / rows, and `crossed` is X^T Y / rows with the original inputs Y.
    """
    shift: Array = np.matmul(crossed - hessian, weight, dtype=np.float32)
    try:
        return weight + cho_solve(cho_factor(damped(hessian).T, overwrite_a=True), shift)
    except LinAlgError:
        # what rounding makes of many inputs that are nearly the same
        return weight + np.linalg.solve(damped(hessian), shift).astype(np.float32)


def _quotient(left: Array, right: Array) -> Array:
    """Return left / right, 0 where both are."""
    return np.divide(left, np.maximum(right, np.float32(1e-30)), dtype=np.float32)


def _dots(left: NDArray[np.floating], right: NDArray[np.floating]) -> Array:
    """Return the products of columns, [1, outputs]."""
    return np.einsum("io,io->o", left, right, dtype=np.float32)[np.newaxis]
