"""Groups of similar outputs, which lose least where they have to share their inputs."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Groups = Sequence[Indices]

POWER_STEPS: Final = 8
"""Steps towards the direction in which outputs differ most: the order it gives settles long before the direction."""


def similar_outputs(scores: NDArray[np.float32], height: int) -> Groups:
    """Return groups of `height` outputs, the last one maybe smaller, whose scores [inputs, outputs] are alike.

    Outputs are cut in two where they differ most, again and again: half of them, in whole groups, to each side.
    """
    # roots: a few large scores would decide alone; each output counts as much as any other
    roots = np.sqrt(np.maximum(scores, np.float32(0.0)).T)
    norms = np.sqrt((roots * roots).sum(axis=1, keepdims=True))
    roots /= np.where(norms > 0, norms, np.float32(1.0))
    groups, pending = list[Indices](), [np.arange(len(roots), dtype=np.int64)]
    while pending:
        outputs = pending.pop()
        if len(outputs) <= height:
            groups.append(np.sort(outputs))
            continue
        cut = -(-len(outputs) // height) // 2 * height
        order = outputs[np.argsort(_differences(roots[outputs]), kind="stable")]
        pending += [order[cut:], order[:cut]]
    return groups


def _differences(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the coordinate of points [points, axes] along the direction in which they differ most."""
    centred = points - points.mean(axis=0)
    coordinate = centred[:, 0] + np.arange(len(points), dtype=np.float32) / len(points)
    for _ in range(POWER_STEPS):
        direction = coordinate @ centred
        norm = float(np.sqrt((direction * direction).sum()))
        if norm == 0.0:
            break
        coordinate = centred @ (direction / np.float32(norm))
    return coordinate
