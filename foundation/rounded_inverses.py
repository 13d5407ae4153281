"""Numbers that a multiplication or division in float32 makes given results of."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

NEIGHBOURS: Final = 4
"""Floats beside an inverse, rounded as well, among which the number is."""


def dividend_of(quotients: Floats, divisor: float) -> Floats | None:
    """Return dividends whose float32 division by `divisor` gives `quotients` exactly, None where one has none."""
    number = np.float32(divisor)
    return _found(quotients, quotients * number, lambda values: values / number)


def factors_of(products: Floats, factor: float) -> Floats | None:
    """Return factors whose float32 product with `factor` is `products` exactly, None where one has no such factor."""
    number = np.float32(factor)
    with np.errstate(all="ignore"):
        return _found(products, products / number, lambda values: values * number)


def _found(results: Floats, near: Floats, operation: Callable[[Floats], Floats]) -> Floats | None:
    """Search the neighbours of `near` for inputs that a monotone `operation` maps exactly to `results`."""
    with np.errstate(all="ignore"):
        for _ in range(NEIGHBOURS):
            wrong = operation(near) - results
            near = np.where(wrong < 0, np.nextafter(near, np.float32(np.inf)), near)
            near = np.where(wrong > 0, np.nextafter(near, np.float32(-np.inf)), near)
        return near if np.array_equal(operation(near), results) else None
