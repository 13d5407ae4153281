"""Cost of a tile beside its layers: rows that become columns on their way in, and rows again on their way out."""

from collections.abc import Sequence
from typing import Final

from xdsl.ir import Operation, SSAValue

from redpebble.dialect.tensors import shape_of
from redpebble.passes.analysis.clusters import boundary_of

VALUE_US: Final = 0.13e-3
"""Microseconds for a value that goes in or out, of a tile without bytes."""

VALUE_US_A_BYTE: Final = 0.13e-3 / (1 << 20)
"""Microseconds more for each byte of all values that do: with 2 MiB of second-level cache a value was measured to take
from 0.14 ns in tiles of 100 KB to 0.40 ns in tiles of 2 MB."""

MOST_VALUE_US: Final = 0.5e-3
"""Microseconds for a value in tiles that leave that cache."""


def features_of(value: SSAValue) -> int:
    """Return the number of features of a value in a tile."""
    return (shape_of(value) or (1,))[-1]


def transpose_us(features: int, width: int) -> float:
    """Return the microseconds for values with so many features together to come into a tile and to leave it."""
    values = features * width
    return values * min(MOST_VALUE_US, VALUE_US + VALUE_US_A_BYTE * 4 * values)


def boundary_features(ops: Sequence[Operation]) -> int:
    """Return the features of all values that come into a tile of `ops` and that leave it."""
    inputs, outputs = boundary_of(ops)
    return sum(features_of(value) for value in (*inputs, *outputs))
