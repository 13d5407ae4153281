"""Weights of four bits: codes with a scale for each group of inputs, and a sweep that makes up for their errors.

The sweep goes from one input to the next. What a weight loses, because it is pruned or because its code is a rounded
one, later inputs make up for: GPTQ (Frantar et al. 2023) and SparseGPT (Frantar and Alistarh 2023) are the same sweep
with one of both errors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .refit import DAMPING

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]

LEAST, MOST = -8, 7
"""Steps from zero that a code of four bits stands for."""

GROUP: Final = 32
"""Neighbouring inputs of an output that share a scale, as onnxruntime-genai's model builder has them."""


@dataclass(frozen=True)
class Grid:
    """The values that a weight may have: whole steps of the scale of its group."""

    group: int = GROUP

    def scales(self, weight: Array) -> Array:
        """Return the scales [groups, outputs] of a weight [inputs, outputs]: the largest value is a code exactly."""
        groups = np.pad(weight, ((0, -len(weight) % self.group), (0, 0))).reshape(-1, self.group, weight.shape[1])
        largest = np.abs(groups).argmax(axis=1)[:, np.newaxis]
        scales = np.take_along_axis(groups, largest, axis=1)[:, 0] / np.float32(LEAST)
        # zeros alone have any scale; those below normal numbers are zeros
        return np.where(np.abs(scales) < np.finfo(np.float32).tiny, np.float32(1.0), scales)

    def steps(self, weight: Array, scales: Array) -> Array:
        """Return the steps [inputs, outputs], whole numbers, by scales for each input [inputs or 1, outputs]."""
        return np.clip(np.rint(weight / scales), LEAST, MOST)

    def nearest(self, weight: Array) -> tuple[Array, Array]:
        """Return a weight rounded to the nearest codes, and the scales."""
        scales = self.scales(weight)
        wide = scales.repeat(self.group, axis=0)[: len(weight)]
        return self.steps(weight, wide) * wide, scales


@dataclass(frozen=True)
class Coded:
    """A weight [inputs, outputs] on its grid, and the scales [groups, outputs]."""

    weight: Array
    scales: Array


ChooseMask = Callable[[Array, slice], Mask]
"""(scores of some inputs [inputs, outputs], which these are) -> mask."""


def swept(
    weight: Array, hessian: Array, mask_of: ChooseMask, window: int, grid: Grid | None = None
) -> tuple[Array, Array]:
    """Return a weight [inputs, outputs] inside a mask, and on a grid if there is one, with its scales.

    The mask is chosen for `window` inputs at a time, when the inputs before have their last values. Without a grid the
    scales are empty.
    """
    dead = np.diag(hessian) == 0
    matrix = hessian.astype(np.float64)
    matrix[dead, dead] = 1.0
    matrix[np.diag_indices(len(matrix))] += DAMPING * np.diag(matrix).mean()
    # the upper factor of the inverse: row i is that of the inverse once the inputs before i are gone
    factor = np.linalg.cholesky(np.linalg.inv(matrix)).T.astype(np.float32)
    diagonal = np.diag(factor)[:, np.newaxis]
    result = np.where(dead[:, np.newaxis], np.float32(0.0), weight)
    size = 0 if grid is None else -(-len(weight) // grid.group)
    scales = np.ones((size, weight.shape[1]), np.float32)
    for first in range(0, len(weight), window):
        inputs = slice(first, min(first + window, len(weight)))
        own, left = factor[inputs, inputs], result[inputs]
        mask = mask_of(np.square(left / diagonal[inputs]), inputs)
        errors, kept = np.zeros_like(left), np.zeros_like(left)
        for i in range(len(left)):
            if grid is not None and (first + i) % grid.group == 0:
                group = slice(first + i, min(first + i + grid.group, len(weight)))
                here = mask[i : i + grid.group]
                if len(here) < group.stop - group.start:
                    here = mask_of(np.square(result[group] / diagonal[group]), group)
                scales[(first + i) // grid.group] = grid.scales(result[group] * here)[0]
            chosen = np.where(mask[i], left[i], np.float32(0.0))
            if grid is not None:
                scale = scales[(first + i) // grid.group]
                chosen = grid.steps(chosen, scale) * scale
            kept[i] = chosen
            errors[i] = (left[i] - chosen) / own[i, i]
            left[i:] -= own[i, i:, np.newaxis] * errors[i]
        result[inputs] = kept
        result[inputs.stop :] -= factor[inputs, inputs.stop :].T @ errors
    return result, scales


def coded(weight: Array, hessian: Array, grid: Grid) -> Coded:
    """Return the codes of a weight whose zeros stay zeros; other weights make up for what each loses by rounding."""
    mask = weight != 0
    rows = max(grid.group, 128 // grid.group * grid.group)
    return Coded(*swept(weight, hessian, lambda _, inputs: mask[inputs], rows, grid))
