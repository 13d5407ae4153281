"""Cutting a chain of layers into as many runs as there are parts, such that the heaviest run is light."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .partition import Partition


def stages(work: Sequence[int], part_count: int) -> list[int]:
    """Return the stage of each layer, ascending from 0, such that no other cut has a lighter heaviest stage.

    Raises:
        ValueError: there is no part.
    """
    if part_count < 1:
        raise ValueError(f"expected 1 part or more, got {part_count}")
    low, high = max(work, default=0), sum(work)
    while low < high:
        middle = (low + high) // 2
        if max(_filled(work, middle), default=0) < part_count:
            high = middle
        else:
            low = middle + 1
    return _filled(work, low)


def stage_partition(work: Sequence[int], widths: Sequence[int], part_count: int) -> Partition:
    """Return the partition in which the part of a layer's stage owns all its outputs; the first part owns the inputs.

    `widths` are those of the levels, inputs first.

    Raises:
        ValueError: there is no part, or not one level more than layers.
    """
    if len(widths) != len(work) + 1:
        raise ValueError(f"expected one level more than {len(work)} layers, got {len(widths)}")
    owners = [0, *stages(work, part_count)]
    levels = zip(widths, owners, strict=True)
    return Partition(part_count, tuple(np.full(width, owner, dtype=np.int32) for width, owner in levels))


def _filled(work: Sequence[int], limit: int) -> list[int]:
    """Return the stages when each takes layers until the next one would lift it above the limit."""
    found: list[int] = []
    stage = load = 0
    for amount in work:
        if load + amount > limit and load > 0:
            stage, load = stage + 1, 0
        load += amount
        found.append(stage)
    return found
