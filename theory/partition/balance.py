"""Dealing weights to parts evenly, and how full a part may be."""

from __future__ import annotations

from heapq import heapify, heapreplace
from math import floor

import numpy as np
from numpy.typing import NDArray

from .partition import Owners


def dealt_by_weight(weights: NDArray[np.int64], part_count: int) -> Owners:
    """Return a part for each weight [weights]: from the heaviest on, the part that is lightest so far."""
    loads = [(0, part) for part in range(part_count)]
    heapify(loads)
    parts = np.zeros(len(weights), dtype=np.int32)
    for item in np.argsort(-weights, kind="stable").tolist():
        load, part = loads[0]
        parts[item] = part
        heapreplace(loads, (load + int(weights[item]), part))
    return parts


def loads_of(weights: NDArray[np.int64], parts: Owners, part_count: int) -> NDArray[np.int64]:
    """Return the weight of each part [parts], given weights [items] and the part of each."""
    return np.bincount(parts, weights=weights.astype(np.float64), minlength=part_count).astype(np.int64)


def most_connections(weights: NDArray[np.int64], part_count: int, imbalance: float) -> int:
    """Return how many connections a part may have, for the connections [outputs] of each output.

    That is the mean and `imbalance` more of it; or, where outputs are too few or too heavy for that, the fullest part
    when they are dealt out by weight.
    """
    total = int(weights.sum())
    limit = floor((1 + imbalance) * total / part_count)
    # dealing ends within the heaviest weight above the mean
    if total + part_count * int(weights.max(initial=0)) <= part_count * limit:
        return limit
    return max(limit, int(loads_of(weights, dealt_by_weight(weights, part_count), part_count).max()))
