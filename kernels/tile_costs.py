"""Costs of a tile beside the kernels of its layers: transposition, reductions, and threads that share it.

The costs of threads were measured on two cores whose second-level caches are their own.
"""

from typing import Final

TRANSPOSED_US: Final = 0.13e-3
"""Microseconds for a value that goes in or out, of a tile without bytes."""

TRANSPOSED_US_A_BYTE: Final = 0.13e-3 / (1 << 20)
"""Microseconds more for each byte of all values that do: with 2 MiB of second-level cache a value was measured to take
from 0.14 ns in tiles of 100 KB to 0.40 ns in tiles of 2 MB."""

MOST_TRANSPOSED_US: Final = 0.5e-3
"""Microseconds for a value in tiles that leave that cache."""

COPIED_US: Final = 0.03e-3
"""Microseconds for a value that goes in or out of a tile of rows."""

REDUCED_US: Final = 0.3e-3
"""Microseconds for a value in a normalisation or softmax."""

WEIGHT_US: Final = 0.12e-3
"""Microseconds for reading the weight of a connection of a layer whose kernel's time is not known."""

PRODUCT_US: Final = 0.018e-3
"""Microseconds more for each batch column that such a connection meets."""

FETCH_US: Final = 0.8e-3
"""Microseconds for reading a value that another thread has written."""

BARRIER_US: Final = 0.3
"""Microseconds of a barrier of two threads."""


def transpose_us(features: int, width: int) -> float:
    """Return the microseconds for values with so many features together to come into a tile and to leave it."""
    values = features * width
    return values * min(MOST_TRANSPOSED_US, TRANSPOSED_US + TRANSPOSED_US_A_BYTE * 4 * values)


def boundary_us(features: int, width: int, *, of_rows: bool) -> float:
    """Return the same for a tile of columns, or for one of rows, which are only copied."""
    return COPIED_US * features * width if of_rows else transpose_us(features, width)


def unknown_layer_us(connections: int, width: int) -> float:
    """Return an estimate of the microseconds of a layer whose kernel's time is not known."""
    return connections * (WEIGHT_US + PRODUCT_US * width)
