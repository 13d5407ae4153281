"""Steps of one rank on a batch tile: native functions on buffers, sends and receives, in one fixed order."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...lowering.llvm.values import FLOAT_BYTES

Indices = NDArray[np.int64]


class Buffer(NamedTuple):
    """Features of a value, and where they lie: feature-major blocks, or a row-major input or output of the network."""

    features: int
    kind: str
    """`blocks`, `zeros` (blocks of zeros), `input` or `output`."""
    port: int
    """Number of the input or output, else -1."""
    zero: int | None = None
    """The byte that is the code of 0, where values are codes of a byte each; None where they are floats."""

    @property
    def value_bytes(self) -> int:
        """The bytes of a value."""
        return FLOAT_BYTES if self.zero is None else 1


class BufferRow(NamedTuple):
    """Start of rows: the number of a buffer, and a row of it."""

    buffer: int
    row: int


@dataclass(frozen=True)
class Call:
    """Run a native function on its operands: the arguments, then the results."""

    function: str
    operands: tuple[BufferRow, ...]

    @property
    def buffers(self) -> tuple[int, ...]:
        return tuple(operand.buffer for operand in self.operands)


class Route(NamedTuple):
    """Rows that travel between two ranks: the other rank, and the row numbers in the buffer here."""

    rank: int
    rows: Indices


@dataclass(frozen=True)
class Send:
    """Send rows of a buffer; `tag` is the number of the value, the same on all ranks."""

    tag: int
    buffer: int
    routes: tuple[Route, ...]


@dataclass(frozen=True)
class Receive:
    """Wait for the rows of a value; the rows of each sender are consecutive in a buffer."""

    tag: int
    buffer: int
    routes: tuple[Route, ...]


Step = Call | Send | Receive
