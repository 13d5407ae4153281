"""What a tile costs beside its layers: rows that become columns on their way in, and rows again on their way out."""

from collections.abc import Iterable
from typing import Final

from xdsl.ir import Operation, SSAValue

from redpebble.dialect.tensors import shape_of
from redpebble.passes.analysis.rowwise import dynamic_operands

TRANSPOSE_US: Final = (0.13e-3, 0.13e-3 / (1 << 20))
"""Of a value that goes in or out, and for each byte of all that do: measured with 2 MiB of second-level cache, where it
is from 0.14 ns in tiles of 100 KB to 0.40 ns in tiles of 2 MB."""

MOST_TRANSPOSE_US: Final = 0.5e-3
"""Of a value in tiles that leave that cache."""


def features_of(value: SSAValue) -> int:
    """Return the number of features of a value in a tile."""
    return (shape_of(value) or (1,))[-1]


def transpose_us(features: int, width: int) -> float:
    """Return the microseconds for values with so many features together to come into a tile and to leave it."""
    fixed, each_byte = TRANSPOSE_US
    values = features * width
    return values * min(MOST_TRANSPOSE_US, fixed + each_byte * 4 * values)


def features_at_the_edge(ops: Iterable[Operation]) -> int:
    """Return the features of all values that come into a tile of `ops` and that leave it."""
    members = set(ops)
    operands = dict.fromkeys(operand for op in members for operand in dynamic_operands(op))
    values = [operand for operand in operands if operand.owner not in members]
    for op in members:
        values += [one for one in op.results if any(use.operation not in members for use in one.uses)]
    return sum(features_of(value) for value in values)
