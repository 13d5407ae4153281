"""Methods by name: each makes the sparse weight of a layer from the dense one and what its inputs were.

```
magnitude   the smallest weights go (Han et al. 2015)
wanda       the smallest |w| * ||x|| go (Sun et al. 2024)
obs         those with the least w^2 / [H^-1]_ii go (Hassibi and Stork 1993), then the others are refitted
sparsegpt   the same, from one input to the next, each weight's error made up by later ones (Frantar and Alistarh 2023)
movement    those go that training has moved towards zero since the last step of a schedule (Sanh et al. 2020)
admm        alternating between the mask and least squares (Boza 2024), then a refit: loses least
```

All but movement are those of `redpebble.pruning.solving`, on the device of the module, all outputs at once. The loss of
a weight V [outputs, inputs] in place of W is trace((V - W) H (V - W)^T) with H = X^T X / rows: what outputs move by.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from .layers import Live
from .structures import Sparsity

STEPS: Final = 10
"""Steps of ADMM, and those of conjugate gradients behind it."""

Reads = Literal["nothing", "norms", "products", "movement"]
"""Statistics of the inputs: none, mean squares [inputs], or X^T X / rows [inputs, inputs]; or how far each weight
[outputs, inputs] has moved away from zero in training."""

Solve = Callable[[Tensor, Tensor, Sparsity], Tensor]
"""(weight [outputs, inputs], what it reads of the inputs, sparsity) -> the sparse weight."""


@dataclass(frozen=True)
class Sparsifier:
    """A method, and what it reads."""

    solve: Solve
    reads: Reads = "products"


def register_sparsifier(name: str, solve: Solve, reads: Reads = "products") -> None:
    """Give a method a name.

    `solve(weight, inputs, sparsity)` gets a weight [outputs, inputs] in float32, what `reads` says of the layer's
    inputs (an empty tensor for `nothing`), and a sparsity whose `mask(scores)` chooses in the structure asked for.
    """
    SPARSIFIERS[name] = Sparsifier(solve, reads)


def sparsifier_of(name: str | Sparsifier) -> Sparsifier:
    """Return the method of a name.

    Raises:
        ValueError: there is none.
    """
    if isinstance(name, Sparsifier):
        return name
    if name not in SPARSIFIERS:
        raise ValueError(f"method: expected one of {', '.join(SPARSIFIERS)}, got {name!r}")
    return SPARSIFIERS[name]


def solved(solver: Sparsifier, matrix: Tensor, inputs: Tensor, sparsity: Sparsity, live: Live) -> Tensor:
    """Return the sparse weight of a matrix [outputs, inputs], whose live part alone has the density."""
    if live.shape == tuple(matrix.shape):
        return without_denormals(solver.solve(matrix, inputs, sparsity))
    if solver.reads == "movement":
        inputs = live.part(inputs)
    elif solver.reads != "nothing":
        inputs = inputs[live.inputs] if inputs.dim() == 1 else inputs[live.inputs][:, live.inputs]
    return live.whole(without_denormals(solver.solve(live.part(matrix), inputs, sparsity)))


def without_denormals(matrix: Tensor) -> Tensor:
    """Return zeros for what is next to nothing: a product with a denormal takes a hundred times as long on most CPUs.

    Weights of inputs that are always zero are such numbers: no data say that they should be others.
    """
    return torch.where(matrix.abs() < torch.finfo(torch.float32).tiny, 0.0, matrix)


class Scaled(NamedTuple):
    """A layer with inputs scaled to a mean square of one, and a damped Hessian."""

    weight: Tensor
    hessian: Tensor
    scale: Tensor
    """[inputs]: what the weight was multiplied by."""

    @staticmethod
    def of(weight: Tensor, hessian: Tensor) -> "Scaled":
        matrix = damped(hessian)
        scale = matrix.diagonal().sqrt()
        return Scaled(weight * scale, matrix / scale / scale[:, None], scale)


def damped(hessian: Tensor, share: float = 0.01) -> Tensor:
    """Return a Hessian that can be inverted, with a share of its diagonal's mean added to that.

    An input that is always zero gets the mean of the others.
    """
    diagonal = hessian.diagonal()
    mean = diagonal.mean()
    mean = torch.where(mean > 0, mean, torch.ones_like(mean))
    return hessian + torch.diag(torch.where(diagonal == 0, mean, torch.zeros_like(mean)) + share * mean)


def inverse_of(matrix: Tensor) -> Tensor:
    """Return the inverse of a positive definite matrix."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return torch.linalg.inv(matrix.double()).to(matrix.dtype) if failed else torch.cholesky_inverse(factor)


def refitted(weight: Tensor, hessian: Tensor, mask: Tensor, steps: int = STEPS) -> Tensor:
    """Return weights inside a mask that lose least in place of `weight`, about."""
    layer = Scaled.of(weight, hessian)
    return _conjugate_gradients(layer, mask, layer.weight * mask, steps) / layer.scale


def loss_of(weight: Tensor, pruned: Tensor, hessian: Tensor) -> float:
    """Return the mean square by which outputs move, over the mean square of the outputs."""
    difference = pruned - weight
    moved, whole = ((one @ hessian * one).sum(dtype=torch.float64) for one in (difference, weight))
    return float(moved / whole.clamp(min=1e-30))


def _conjugate_gradients(layer: Scaled, mask: Tensor, start: Tensor, steps: int) -> Tensor:
    inside = mask.to(start.dtype)
    solution = start.clone()
    residual = inside * ((layer.weight - solution) @ layer.hessian)
    direction, square = residual, _squares(residual, residual)
    for _ in range(steps):
        product = inside * (direction @ layer.hessian)
        length = square / _squares(direction, product).clamp(min=1e-30)
        solution += length * direction
        residual = residual - length * product
        before, square = square, _squares(residual, residual)
        direction = residual + square / before.clamp(min=1e-30) * direction
    return solution


def _squares(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(1, keepdim=True)


def _magnitude(weight: Tensor, inputs: Tensor, sparsity: Sparsity) -> Tensor:
    del inputs
    return weight * sparsity.mask(weight.square())


def _wanda(weight: Tensor, norms: Tensor, sparsity: Sparsity) -> Tensor:
    return weight * sparsity.mask(weight.square() * norms)


def _movement(weight: Tensor, moved: Tensor, sparsity: Sparsity) -> Tensor:
    # no score is negative; what is gone comes last, and before any training the smallest go
    scores = weight.square() if not bool(moved.any()) else moved - moved.min() + 1e-30
    return weight * sparsity.mask(torch.where(weight == 0, torch.zeros_like(scores), scores))


def _obs(weight: Tensor, hessian: Tensor, sparsity: Sparsity) -> Tensor:
    scores = weight.square() / inverse_of(damped(hessian)).diagonal()
    return refitted(weight, hessian, sparsity.mask(scores))


def _sparsegpt(weight: Tensor, hessian: Tensor, sparsity: Sparsity) -> Tensor:
    # the upper factor of the inverse: row i is that of the inverse once the inputs before i are gone
    factor = torch.linalg.cholesky(inverse_of(damped(hessian).double()), upper=True).float()
    result = weight.clone()
    window = sparsity.structure.window
    for first in range(0, weight.shape[1], window):
        inputs = slice(first, first + window)
        own, left = factor[inputs, inputs], result[:, inputs]
        mask = sparsity.mask((left / own.diagonal()).square())
        errors = torch.zeros_like(left)
        for i in range(left.shape[1]):
            errors[:, i] = torch.where(mask[:, i], 0.0, left[:, i]) / own[i, i]
            left[:, i:] -= errors[:, i, None] * own[i, i:]
        result[:, inputs] = left * mask
        result[:, first + window :] -= errors @ factor[inputs, first + window :]
    return result


def _admm(weight: Tensor, hessian: Tensor, sparsity: Sparsity) -> Tensor:
    layer = Scaled.of(weight, hessian)
    # the penalty is 1, the mean square of a scaled input
    inverse = inverse_of(layer.hessian + torch.eye(len(hessian), device=hessian.device))
    constant = layer.weight @ layer.hessian @ inverse
    dual, solution = torch.zeros_like(weight), layer.weight
    projected, mask = solution, torch.ones_like(weight, dtype=torch.bool)
    for _ in range(STEPS):
        mask = sparsity.mask((solution + dual).square())
        projected = (solution + dual) * mask
        dual = dual + solution - projected
        solution = constant + (projected - dual) @ inverse
    return _conjugate_gradients(layer, mask, projected, STEPS) / layer.scale


SPARSIFIERS: Final[dict[str, Sparsifier]] = {
    "magnitude": Sparsifier(_magnitude, "nothing"),
    "wanda": Sparsifier(_wanda, "norms"),
    "obs": Sparsifier(_obs),
    "sparsegpt": Sparsifier(_sparsegpt),
    "movement": Sparsifier(_movement, "movement"),
    "admm": Sparsifier(_admm),
}
