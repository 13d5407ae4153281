"""Sparse patterns as lists: the inputs that each row, an output, reads."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class Rows(NamedTuple):
    """The inputs of each row: row n reads `inputs[pointers[n] : pointers[n + 1]]`, ascending, of `input_count`."""

    pointers: Indices
    inputs: Indices
    input_count: int

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self.pointers) - 1

    @property
    def lengths(self) -> Indices:
        """How many inputs each row reads."""
        return np.diff(self.pointers)

    def of(self, row: int) -> Indices:
        """Return the inputs of one row."""
        return self.inputs[self.pointers[row] : self.pointers[row + 1]]

    def entries(self, chosen: Indices) -> tuple[Indices, Indices]:
        """Return the connections of the `chosen` rows, one after the other: which of them has it, and its input."""
        lengths = self.pointers[chosen + 1] - self.pointers[chosen]
        owner = np.repeat(np.arange(len(chosen)), lengths)
        starts = np.cumsum(lengths) - lengths
        return owner, self.inputs[np.repeat(self.pointers[chosen] - starts, lengths) + np.arange(len(owner))]

    def dense(self, chosen: Indices) -> NDArray[np.float32]:
        """Return the `chosen` rows as ones and zeros [chosen, inputs]."""
        owner, inputs = self.entries(chosen)
        grid = np.zeros((len(chosen), self.input_count), dtype=np.float32)
        grid[owner, inputs] = 1
        return grid
