"""Layers that are measured where a machine is to be known: random ones, drawn again from their numbers."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

PLANTED: Final = 1000
"""The layers from this number on have outputs that share inputs, those below are random."""

MOST_CELLS: Final = 600_000
"""Inputs times outputs of a layer that tuning measures: larger ones take longer, and say little more."""

PROBES: Final = (
    *(4, 54, 102, 103, 167, 181, 206, 207, 262, 298, 335, 348, 351, 356, 435, 487, 489, 521, 546, 566, 593, 602, 604),
    *(633, 638, 639, 640, 756, 770, 780, 1021, 1061, 1063, 1088),
)
"""Thirty random layers, and four whose outputs share inputs, that lie as far apart as `spread` finds."""

Mask = NDArray[np.bool_]


def mask_of(number: int) -> Mask:
    """Return the mask [inputs, outputs] of a layer."""
    return planted_mask(number) if number >= PLANTED else random_mask(number)


def random_mask(number: int) -> Mask:
    """Return a random mask of 45 to 2521 neurons a side; outputs are about equally full, or skewed."""
    rng = np.random.default_rng([2026, number])
    inputs, outputs = (int(2 ** rng.uniform(5.5, 11.3)) // 8 * 8 for _ in range(2))
    density = float(np.exp(rng.uniform(float(np.log(0.01)), float(np.log(0.7)))))
    skew = float(rng.choice(np.array([0, 0, 0.7, 1.2])))
    chance = np.minimum(1, density * np.exp(skew * rng.standard_normal(outputs) - skew**2 / 2))
    mask = rng.random((inputs, outputs)) < chance[None, :]
    mask[0, mask.sum(axis=0) == 0] = True
    return mask


def planted_mask(number: int) -> Mask:
    """Return a mask whose outputs share half to all of their inputs with one, three or seven others, shuffled."""
    rng = np.random.default_rng([2027, number])
    inputs, outputs = (int(2 ** rng.uniform(6.5, 10.5)) // 8 * 8 for _ in range(2))
    density = float(np.exp(rng.uniform(float(np.log(0.02)), float(np.log(0.4)))))
    shared, height = rng.uniform(0.5, 1), int(rng.choice(np.array([2, 4, 8])))
    panels = np.repeat(rng.random((inputs, outputs // height)) < density * shared, height, axis=1)
    own = rng.random((inputs, outputs)) < density * (1 - shared)
    mask = np.pad(panels, ((0, 0), (0, outputs - panels.shape[1]))) | own
    mask[0, mask.sum(axis=0) == 0] = True
    return mask[:, rng.permutation(outputs)]


def spread(points: NDArray[np.float64], count: int) -> list[int]:
    """Return the rows of so many points, the first in the middle, each as far as possible from all before it."""
    found = [int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())]
    distances = np.full(len(points), np.inf)
    while len(found) < count:
        distances = np.minimum(distances, ((points - points[found[-1]]) ** 2).sum(axis=1))
        found.append(int(distances.argmax()))
    return found
