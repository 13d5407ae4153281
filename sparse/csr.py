"""Sparse matrices in compressed form, with their values and without."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

CONNECTION_BYTES: Final = 6
"""Bytes that kernels read for a connection, about: a weight of four, and in two where its input is."""


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


class CscMatrix(NamedTuple):
    """A sparse matrix of `shape` [inputs, outputs]; column n holds the entries `pointers[n]` to `pointers[n + 1]`."""

    shape: tuple[int, int]
    pointers: NDArray[np.int64]
    """[outputs + 1], ascending from 0."""
    rows: NDArray[np.int64]
    """[nonzeros], ascending inside a column."""
    values: NDArray[np.float32]
    """[nonzeros]."""

    @staticmethod
    def from_dense(matrix: NDArray[np.float32]) -> "CscMatrix":
        """Return the entries of `matrix` [inputs, outputs] that are not zero (NaN is an entry like any other)."""
        columns, rows = np.nonzero(matrix.T)
        pointers = np.zeros(matrix.shape[1] + 1, dtype=np.int64)
        np.cumsum(np.bincount(columns, minlength=matrix.shape[1]), out=pointers[1:])
        return CscMatrix((matrix.shape[0], matrix.shape[1]), pointers, rows, matrix[rows, columns])

    def to_dense(self) -> NDArray[np.float32]:
        """Return the matrix [inputs, outputs] with its zeros."""
        matrix = np.zeros(self.shape, dtype=np.float32)
        matrix[self.rows, self.columns] = self.values
        return matrix

    @property
    def columns(self) -> NDArray[np.int64]:
        """The column of every entry, [nonzeros]."""
        return np.repeat(np.arange(self.shape[1]), np.diff(self.pointers))

    @property
    def density(self) -> float:
        """The share of entries that are stored; 0 for an empty matrix."""
        size = self.shape[0] * self.shape[1]
        return len(self.values) / size if size else 0.0
