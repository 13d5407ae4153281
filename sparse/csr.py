"""Sparse matrices in compressed form: where their entries are, and the same with values."""

import hashlib
from collections.abc import Iterator
from itertools import islice
from typing import Final, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

Indices = NDArray[np.int64]
Index_co = TypeVar("Index_co", bound=np.integer, default=np.int64, covariant=True)

CONNECTION_BYTES: Final = 6
"""Bytes that kernels read for a connection, about: a weight of four, and in two where its input is."""

FEW_TURNS: Final = 16
"""Steps in which few connections of each row reach all rows of a random mask: each reaches several times as many."""


def stored_bytes(connections: float, size: int) -> float:
    """Return the bytes that kernels read of a weight with so many connections: the shorter form counts."""
    return min(CONNECTION_BYTES * connections, 4.0 * size)


class CsrPattern(NamedTuple, Generic[Index_co]):
    """Positions of the entries of a matrix [rows, columns]: row n has columns `indices[pointers[n] : pointers[n + 1]]`.

    The pattern of a layer has a row for each output and a column for each input. Compiled loops take it as it is.
    """

    pointers: Indices
    """[rows + 1], ascending from 0."""
    indices: NDArray[Index_co]
    """[entries], ascending inside a row."""
    column_count: int

    @property
    def row_count(self) -> int:
        return len(self.pointers) - 1

    @property
    def lengths(self) -> Indices:
        """Entries of each row, [rows]."""
        return np.diff(self.pointers)

    @property
    def digest(self) -> bytes:
        """A fingerprint that equal patterns have in common, and no others."""
        digest = hashlib.sha256(f"{self.column_count} {self.indices.dtype}".encode())
        for array in (self.pointers, self.indices):
            digest.update(np.ascontiguousarray(array).data)
        return digest.digest()

    @property
    def rows(self) -> Indices:
        """The row of each entry, [entries]."""
        return np.repeat(np.arange(self.row_count), self.lengths)

    def of(self, row: int) -> NDArray[Index_co]:
        """Return the columns [entries] of one row, ascending."""
        return self.indices[self.pointers[row] : self.pointers[row + 1]]

    def entries(self, chosen: Indices) -> tuple[Indices, NDArray[Index_co]]:
        """Return the entries of the `chosen` rows: the position of each entry's row in `chosen`, and its column."""
        lengths = self.pointers[chosen + 1] - self.pointers[chosen]
        owner = np.repeat(np.arange(len(chosen)), lengths)
        starts = np.cumsum(lengths) - lengths
        return owner, self.indices[np.repeat(self.pointers[chosen] - starts, lengths) + np.arange(len(owner))]

    def taken(self, chosen: Indices) -> "CsrPattern[Index_co]":
        """Return the pattern of the `chosen` rows alone."""
        ends = np.cumsum(self.pointers[chosen + 1] - self.pointers[chosen])
        return CsrPattern(np.append(0, ends), self.entries(chosen)[1], self.column_count)

    def thinned(self, most: int) -> "CsrPattern[Index_co]":
        """Return the pattern with at most so many entries of each row, evenly spaced."""
        lengths = np.minimum(self.lengths, most)
        pointers = np.append(0, np.cumsum(lengths))
        owner = np.repeat(np.arange(self.row_count), lengths)
        rank = np.arange(len(owner)) - pointers[owner]
        chosen = self.pointers[owner] + rank * self.lengths[owner] // lengths[owner]
        return CsrPattern(pointers, self.indices[chosen], self.column_count)

    def transposed(self) -> "CsrPattern[Index_co]":
        """Return the pattern [columns, rows]."""
        ends = np.cumsum(np.bincount(self.indices, minlength=self.column_count))
        order = stable_order(self.indices, self.column_count)
        return CsrPattern(np.append(0, ends), self.rows[order].astype(self.indices.dtype), self.row_count)

    def hangs_together(self) -> bool:
        """Return whether connections lead from any row with entries to any other one; False where that takes long."""
        filled = np.count_nonzero(self.lengths)
        return bool(filled < 2) or any(int(rows.sum()) == filled for rows, _ in islice(self.reached(), FEW_TURNS))

    def reached(self, start: int | None = None) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Yield the rows and columns that are reached from a row, the first with entries by default, in 0, 1, .. steps.

        Each step leads from all rows to their columns, or from all columns to the rows that have them.
        """
        owner, rows, columns = self.rows, np.zeros(self.row_count, np.bool_), np.zeros(self.column_count, np.bool_)
        rows[owner[0] if start is None else start] = True
        yield rows, columns
        while True:
            columns[self.indices[rows[owner]]] = True
            yield rows, columns
            rows[owner[columns[self.indices]]] = True
            yield rows, columns

    def dense(self, chosen: Indices) -> NDArray[np.float32]:
        """Return the `chosen` rows as ones and zeros [chosen, columns]."""
        owner, columns = self.entries(chosen)
        grid = np.zeros((len(chosen), self.column_count), dtype=np.float32)
        grid[owner, columns] = 1
        return grid

    def check(self) -> None:
        """Check that the arrays fit each other.

        Raises:
            ValueError: pointers or the columns of a row do not ascend, or a column is out of range.
        """
        pointers, indices = self.pointers, self.indices.astype(np.int64, copy=False)
        if len(pointers) == 0 or pointers[0] != 0 or pointers[-1] != len(indices) or np.any(np.diff(pointers) < 0):
            raise ValueError(f"pointers do not ascend from 0 to {len(indices)} entries")
        if len(indices) and not 0 <= indices.min() <= indices.max() < self.column_count:
            wrong = indices.max() if indices.min() >= 0 else indices.min()
            raise ValueError(f"expected columns from 0 to {self.column_count - 1}, got {wrong}")
        is_first = np.zeros(len(indices) + 1, dtype=np.bool_)
        is_first[pointers] = True
        falls = np.flatnonzero((np.diff(indices) <= 0) & ~is_first[1:-1]) + 1
        if len(falls):
            raise ValueError(f"the columns of row {self.rows[falls[0]]} do not ascend")


class CscMatrix(NamedTuple):
    """A sparse matrix of `shape` [inputs, outputs]; column n holds the entries `pointers[n]` to `pointers[n + 1]`."""

    shape: tuple[int, int]
    pointers: Indices
    """[outputs + 1], ascending from 0."""
    rows: Indices
    """[nonzeros], ascending inside a column."""
    values: NDArray[np.float32]
    """[nonzeros]."""

    @staticmethod
    def from_dense(matrix: NDArray[np.float32]) -> "CscMatrix":
        """Return the entries of `matrix` [inputs, outputs] that are not zero (NaN is an entry like any other)."""
        inputs, outputs = map(int, matrix.shape)
        by_column = np.ascontiguousarray(matrix.T)
        # numpy finds the ones of bits several times as fast as the nonzeros of floats
        is_entry = by_column != 0
        places = np.flatnonzero(is_entry)
        pointers = np.searchsorted(places, np.arange(outputs + 1) * inputs)
        rows = places - np.repeat(np.arange(outputs) * inputs, np.diff(pointers))
        return CscMatrix((inputs, outputs), pointers, rows, by_column.ravel()[places])

    def to_dense(self) -> NDArray[np.float32]:
        """Return the matrix [inputs, outputs] with its zeros."""
        matrix = np.zeros(self.shape, dtype=np.float32)
        matrix[self.rows, self.columns] = self.values
        return matrix

    def transposed(self) -> "CscMatrix":
        """Return the matrix [outputs, inputs] with the same entries."""
        pattern = self.pattern.transposed()
        values = self.values[stable_order(self.rows, self.shape[0])]
        return CscMatrix((self.shape[1], self.shape[0]), pattern.pointers, pattern.indices, values)

    @property
    def pattern(self) -> CsrPattern:
        """The pattern of the entries: the same arrays, read as rows of outputs [outputs, inputs]."""
        return CsrPattern(self.pointers, self.rows, self.shape[0])

    @property
    def columns(self) -> Indices:
        """The column of every entry, [nonzeros]."""
        return self.pattern.rows

    @property
    def density(self) -> float:
        """The share of entries that are stored; 0 for an empty matrix."""
        size = self.shape[0] * self.shape[1]
        return len(self.values) / size if size else 0.0


def stable_order(keys: NDArray[np.integer], count: int) -> Indices:
    """Return the stable order [keys] that sorts `keys` [keys], all below `count`, fast where `count` is small."""
    return np.argsort(keys.astype(np.uint16) if count <= 1 << 16 else keys, kind="stable")
