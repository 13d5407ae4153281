"""Features of a tile's values, and of those that come into it and leave it."""

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from ...dialect.tensors import shape_of
from .clusters import boundary_of


def features_of(value: SSAValue) -> int:
    """Return the number of features of a value in a tile."""
    return (shape_of(value) or (1,))[-1]


def boundary_features(ops: Sequence[Operation]) -> int:
    """Return the features of all values that come into a tile of `ops` and that leave it."""
    inputs, outputs = boundary_of(ops)
    return sum(features_of(value) for value in (*inputs, *outputs))
