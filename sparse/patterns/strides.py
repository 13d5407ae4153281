"""Strides: rows that read the same inputs relative to themselves, as in butterflies, RadiX-Nets and rings.

Row r of n reads the inputs r - d modulo n, or r xor d, for all d of one set. A set that is the same after adding p has
period p: row r, and those a multiple of p from it, read the same inputs.
"""

from typing import Final, Literal, NamedTuple

import numpy as np

from ..csr import CsrPattern, Indices

FEWEST_ROWS: Final = 4


class Strides(NamedTuple):
    """Row r reads the inputs r - start - k * stride modulo `period`, for k below `radix`, or r xor k * stride."""

    kind: Literal["circulant", "exchange"]
    period: int
    start: int
    stride: int
    radix: int


def strides_of(rows: CsrPattern) -> Strides | None:
    """Return the strides of a square pattern, where it has some; a look at a few rows refuses most patterns."""
    count = rows.row_count
    width = len(rows.of(0)) if count else 0
    if count != rows.column_count or count < FEWEST_ROWS or not 0 < width < count:
        return None
    if np.any(rows.lengths != width):
        return None
    ring = exchange = None
    for number in (FEWEST_ROWS, count):
        inputs, numbers = rows.indices[: number * width].reshape(number, width), np.arange(number)[:, None]
        ring, exchange = _common((numbers - inputs) % count), _common(numbers ^ inputs)
        if ring is None and exchange is None:
            return None
    if ring is not None:
        return _circulant(ring, count)
    if exchange is not None and width == 2 and exchange[0] == 0:
        return Strides("exchange", count, 0, int(exchange[1]), 2)
    return None


def _common(distances: Indices) -> Indices | None:
    """Return the set of distances of all rows, ascending, or None where they differ."""
    ordered = np.sort(distances, axis=1)
    return ordered[0] if np.all(ordered == ordered[0]) else None


def _circulant(distances: Indices, count: int) -> Strides | None:
    """Return the strides of a set of distances modulo `count`, if they are evenly spaced in their period."""
    period = next(
        period
        for period in range(1, count + 1)
        if count % period == 0 and len(np.unique(distances % period)) * (count // period) == len(distances)
    )
    base = np.unique(distances % period)
    if len(base) == period:
        return None
    gaps = np.diff(base, append=base[0] + period)
    uneven = int(gaps.argmax()) if len(base) > 2 else int(gaps.argmax() if gaps[0] != gaps[-1] else len(gaps) - 1)
    start = int(base[(uneven + 1) % len(base)])
    even = np.delete(gaps, uneven)
    if np.any(even != even[:1]):
        return None
    return Strides("circulant", period, start, int(even[0]) if len(even) else 0, len(base))
