"""Sparse matrices among the weights of a model: who asks for the numbers of one gets it dense, with its zeros.

A `SparseTensor` is a tensor like any other; code that knows it takes `weight`, which holds no more than the entries.
"""

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ...sparse.csr import CscMatrix
from ..errors import InvalidModelError, first_line
from ..limits import check_made, check_width

Indices = NDArray[np.int64]
Floats = NDArray[np.float32]


def check_positions(positions: Indices, count: int, shape: Sequence[int]) -> None:
    """Check that `count` values have places inside of an array of `shape`, given as flat indices.

    Raises:
        ValueError: one is outside, a value has no place, or a place no value.
    """
    if min(shape, default=0) < 0:
        raise ValueError(f"expected sizes from 0 on, got shape {list(shape)}")
    if len(positions) and not 0 <= positions.min() <= positions.max() < prod(shape):
        raise ValueError(f"an index outside of shape {list(shape)}")
    if len(positions) != count:
        raise ValueError(f"{count} values and {len(positions)} indices")


class Entries(NamedTuple):
    """The entries of an array, all others are 0; `positions` are their flat indices, ascending, each once."""

    positions: Indices
    values: Floats

    @staticmethod
    def of(positions: Indices, values: Floats, shape: Sequence[int]) -> "Entries":
        """Return entries of an array of `shape` that are given in any order; of those at one place the last counts.

        Raises:
            ValueError: one is outside, or a place has no value.
        """
        check_positions(positions, len(values), shape)
        if np.all(positions[1:] > positions[:-1]):
            return Entries(positions, values)
        order = np.argsort(positions, kind="stable")
        last = np.append(np.diff(positions[order]) > 0, True)
        return Entries(positions[order][last], values[order][last])


class SparseTensor(onnx_ir.LazyTensor):
    """A float matrix whose entries are read, or computed, whenever they are asked for."""

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        compute: Callable[[], Entries],
        parts: Iterable[onnx_ir.TensorProtocol] = (),
    ) -> None:
        """Make a matrix; `parts` are the stored tensors that `compute` reads."""
        super().__init__(self._dense, onnx_ir.DataType.FLOAT, onnx_ir.Shape(shape), name=name)
        self._compute = compute
        self.parts = tuple(parts)

    def _dense(self) -> onnx_ir.TensorProtocol:
        positions, values = self.entries()
        check_made(self.name or "", self.shape.numpy(), values.itemsize, values.nbytes)
        dense = np.zeros(self.shape.numpy(), dtype=np.float32)
        dense.reshape(-1)[positions] = values
        return onnx_ir.tensor(dense, name=self.name)

    def renamed(self, name: str) -> "SparseTensor":
        """Return the same matrix under another name."""
        return SparseTensor(name, self.shape.numpy(), self._compute, self.parts)

    def scaled(self, factor: np.float32) -> "SparseTensor":
        """Return the matrix times a number."""

        def scaled() -> Entries:
            positions, values = self.entries()
            return Entries(positions, values if factor == 1.0 else values * factor)

        return SparseTensor(self.name or "", self.shape.numpy(), scaled, self.parts)

    def entries(self) -> Entries:
        """Return the entries of the matrix, row by row.

        Raises:
            InvalidModelError: they contradict each other or the shape.
        """
        try:
            return self._compute()
        except (ValueError, TypeError, IndexError, OSError) as error:
            raise InvalidModelError(f"sparse tensor {self.name}: {first_line(error)}") from error

    def weight(self, *, transposed: bool) -> CscMatrix:
        """Return the matrix, or its transpose, as a weight [inputs, outputs], without the entries that are 0."""
        rows, columns = self.shape.numpy()
        check_width(self.name or "", (rows, columns))
        positions, values = self.entries()
        if not values.all():
            positions, values = positions[values != 0], values[values != 0]
        # row by row in this matrix is column by column in its transpose
        pointers = np.searchsorted(positions, np.arange(rows + 1, dtype=np.int64) * columns)
        inner = positions % max(columns, 1)
        if transposed:
            return CscMatrix((columns, rows), pointers.astype(np.int64, copy=False), inner, values)
        order = np.argsort(inner, kind="stable")
        outer = np.repeat(np.arange(rows), np.diff(pointers))
        ends = np.cumsum(np.bincount(inner, minlength=columns))
        return CscMatrix((rows, columns), np.append(0, ends), outer[order], values[order])
