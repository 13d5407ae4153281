"""Naming the parts of a layer such that a part owns as many of the inputs it uses as greedily possible.

How a layer's parts are named changes nothing but that: the naming of one layer is chosen after that of the layer
before, and never has to be taken back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .hypergraph import LayerHypergraph
from .partition import Owners


def match_parts(layer: LayerHypergraph, parts: Owners, input_owners: Owners, part_count: int) -> Owners:
    """Return the parts of the groups, renamed for the given owners of the inputs."""
    uses = (layer.users(parts, part_count) > 0).astype(np.float32)
    gains = uses.T @ layer.owned(input_owners, part_count).astype(np.float32)
    return greedy_names(gains.astype(np.int64))[parts]


def greedy_names(gains: NDArray[np.int64]) -> Owners:
    """Return a name [rows] for each row of `gains` [rows, rows], each column once: largest gain first, ties by number.

    Afterwards rows swap names while that gains something.
    """
    count = len(gains)
    names = np.full(count, -1, dtype=np.int32)
    free = np.ones(count, dtype=np.bool_)
    for number in np.argsort(-gains, axis=None, kind="stable").tolist():
        row, name = divmod(number, count)
        if names[row] < 0 and free[name]:
            names[row] = name
            free[name] = False
    return _swapped(gains, names)


def _swapped(gains: NDArray[np.int64], names: Owners) -> Owners:
    rows = np.arange(len(names))
    for _ in range(4 * len(names)):
        now = gains[rows, names]
        crossed = gains[:, names]
        benefit = crossed + crossed.T - now[:, None] - now[None, :]
        number = int(np.argmax(benefit))
        if benefit.reshape(-1)[number] <= 0:
            break
        first, second = divmod(number, len(names))
        names[first], names[second] = names[second], names[first]
    return names
