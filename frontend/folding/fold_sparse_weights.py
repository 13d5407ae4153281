"""Weights that a graph puts together from their entries, sparse all the way: nothing makes their zeros.

before: `w = Reshape(ScatterElements(ConstantOfShape(...), CumSum(Cast(gaps)), values), shape)   y = Gemm(x, w)`
after: `y = Gemm(x, w)` with a `SparseTensor` w, whose entries are computed when they are asked for
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from math import prod
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ..limits import MOST_ENTRIES
from ..reading.lazy_sparse_tensor import Entries, SparseTensor

LONGEST_CHAIN: Final = 64
"""Operators one after the other by which entries are computed; a longer chain is folded like any other."""

Array = NDArray[np.generic]
Numbers = Callable[[], Array]


class SparseValue(NamedTuple):
    """An array that is mostly zeros: its shape, and a function that computes its entries."""

    shape: tuple[int, ...]
    entries: Callable[[], Entries]
    depth: int = 0
    """Operators one after the other by which the entries are computed."""


def sparse_matrices(nodes: Iterable[onnx_ir.Node]) -> Mapping[onnx_ir.Value, SparseTensor]:
    """Return the float matrices that nodes, each after what it reads, make of entries and zeros."""
    known: dict[onnx_ir.Value, SparseValue] = {}
    for node in nodes:
        rule = RULES.get(node.op_type) if node.domain == "" else None
        query = _Query(node, known)
        found = rule(query) if rule is not None and len(node.outputs) == 1 else None
        if found is not None and query.depth < LONGEST_CHAIN:
            several = len(node.outputs[0].uses()) > 1
            entries = cache(found.entries) if several else found.entries
            known[node.outputs[0]] = SparseValue(found.shape, entries, query.depth + 1)
    return {
        value: SparseTensor(value.name or "", found.shape, found.entries)
        for value, found in known.items()
        if len(found.shape) == 2
    }


class _Query:
    """A node, and what is known of its inputs."""

    def __init__(self, node: onnx_ir.Node, known: Mapping[onnx_ir.Value, SparseValue]) -> None:
        self.node, self._known = node, known

    @property
    def depth(self) -> int:
        """Return how many operators the entries of the inputs took."""
        known = (self._known.get(value) for value in self.node.inputs if value is not None)
        return max((value.depth for value in known if value is not None), default=0)

    def sparse(self, index: int) -> SparseValue | None:
        """Return an input that is mostly zeros."""
        value = self._input(index)
        if value is None:
            return None
        tensor = value.const_value
        if isinstance(tensor, SparseTensor):
            return SparseValue(tuple(tensor.shape.numpy()), tensor.entries)
        return self._known.get(value)

    def numbers(self, index: int) -> Numbers | None:
        """Return a function that computes an input of few numbers, or None where they are not known."""
        value = self._input(index)
        return None if value is None else _numbers(value)

    def integers(self, index: int) -> list[int] | None:
        """Return a constant input of integers."""
        value = self._input(index)
        if value is None or value.const_value is None or value.const_value.dtype != onnx_ir.DataType.INT64:
            return None
        return [int(number) for number in value.const_value.numpy().reshape(-1)]

    def _input(self, index: int) -> onnx_ir.Value | None:
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def attribute(self, name: str) -> onnx_ir.Attr | None:
        """Return an attribute."""
        return self.node.attributes.get(name)

    def integer(self, name: str, default: int) -> int:
        """Return an attribute that is an integer."""
        attribute = self.attribute(name)
        return default if attribute is None else attribute.as_int()


def _numbers(value: onnx_ir.Value, depth: int = 0) -> Numbers | None:
    """Return a function that computes a value from constants by the few operators that lists of entries need."""
    tensor, node = value.const_value, value.producer()
    if tensor is not None:
        return None if isinstance(tensor, SparseTensor) or tensor.dtype == onnx_ir.DataType.STRING else tensor.numpy
    if node is None or node.domain != "" or node.op_type not in ("Cast", "CumSum", "Expand") or depth == LONGEST_CHAIN:
        return None
    first = None if node.inputs[0] is None else _numbers(node.inputs[0], depth + 1)
    if first is None:
        return None
    if node.op_type == "Cast":
        kind = onnx_ir.DataType(node.attributes["to"].as_int()).numpy()
        return lambda: first().astype(kind)
    constant = None if node.inputs[1] is None else node.inputs[1].const_value
    if constant is None or isinstance(constant, SparseTensor):
        return None
    second = constant.numpy
    if node.op_type == "Expand":
        return lambda: _expanded(first(), second())
    if any(node.attributes[name].as_int() for name in ("exclusive", "reverse") if name in node.attributes):
        return None
    return lambda: np.cumsum(first(), axis=int(second().reshape(-1)[0]))


def _expanded(array: Array, target: Array) -> Array:
    shape = np.broadcast_shapes(array.shape, tuple(target.tolist()))
    _check_count(prod(shape), array.size)
    return np.broadcast_to(array, shape)


def _check_count(count: int, given: int) -> None:
    """Check how many entries are made of those that are given.

    Raises:
        ValueError: too many.
    """
    if count > max(MOST_ENTRIES, given):
        raise ValueError(f"expected at most {MOST_ENTRIES} entries, got {count} of {given}")


def _zeros(query: _Query) -> SparseValue | None:
    shape, fill = query.integers(0), query.attribute("value")
    if shape is None or min(shape, default=0) < 0:
        return None
    if fill is not None:
        tensor = fill.as_tensor()
        if tensor.dtype != onnx_ir.DataType.FLOAT or np.any(tensor.numpy() != 0):
            return None
    none = Entries(np.zeros(0, np.int64), np.zeros(0, np.float32))
    return SparseValue(tuple(shape), lambda: none)


def _scattered(query: _Query) -> SparseValue | None:
    data, indices, updates = query.sparse(0), query.numbers(1), query.numbers(2)
    reduction = query.attribute("reduction")
    if data is None or indices is None or updates is None or (reduction and reduction.as_string() != "none"):
        return None
    shape = data.shape
    axis = query.integer("axis", 0) % max(len(shape), 1)

    def entries() -> Entries:
        chosen, values = indices().astype(np.int64, copy=False), updates()
        if values.dtype != np.float32 or values.shape != chosen.shape or chosen.ndim != len(shape):
            raise ValueError(f"updates of {values.dtype} {list(values.shape)} at indices of {list(chosen.shape)}")
        if chosen.size and not -shape[axis] <= chosen.min() <= chosen.max() < shape[axis]:
            raise ValueError(f"an index outside of shape {list(shape)}")
        chosen = np.where(chosen < 0, chosen + shape[axis], chosen) if chosen.size and chosen.min() < 0 else chosen
        if len(shape) > 1:
            positions = [chosen if number == axis else grid for number, grid in enumerate(np.indices(chosen.shape))]
            chosen = np.asarray(np.ravel_multi_index(tuple(positions), shape))
        before = data.entries()
        if not len(before.positions):
            return Entries.of(chosen.reshape(-1), values.reshape(-1).view(np.float32), shape)
        joined = np.concatenate((before.positions, chosen.reshape(-1)))
        return Entries.of(joined, np.concatenate((before.values, values.reshape(-1).view(np.float32))), shape)

    return SparseValue(shape, entries)


def _reshaped(query: _Query) -> SparseValue | None:
    source, target = query.sparse(0), query.integers(1)
    if source is None or target is None or query.integer("allowzero", 0):
        return None
    sizes = [source.shape[axis] if size == 0 and axis < len(source.shape) else size for axis, size in enumerate(target)]
    if sizes.count(-1) == 1:
        known = -prod(sizes)
        sizes[sizes.index(-1)] = prod(source.shape) // known if known else -1
    if min(sizes, default=0) < 0 or prod(sizes) != prod(source.shape):
        return None
    return source._replace(shape=tuple(sizes))


def _transposed(query: _Query) -> SparseValue | None:
    source, axes = query.sparse(0), query.attribute("perm")
    if source is None or len(source.shape) != 2 or (axes is not None and [*axes.as_ints()] != [1, 0]):
        return None
    shape = rows, columns = source.shape[1], source.shape[0]

    def entries() -> Entries:
        positions, values = source.entries()
        row, column = positions % max(rows, 1), positions // max(rows, 1)
        return Entries.of(row * columns + column, values, shape)

    return SparseValue(shape, entries)


def _tiled(query: _Query) -> SparseValue | None:
    source, repeats = query.sparse(0), query.integers(1)
    if source is None or repeats is None or len(source.shape) != 2 or len(repeats) != 2 or min(repeats) < 1:
        return None
    (rows, columns), (down, across) = source.shape, repeats
    shape = (rows * down, columns * across)

    def entries() -> Entries:
        positions, values = source.entries()
        _check_count(len(positions) * down * across, len(positions))
        row, column = positions // max(columns, 1), positions % max(columns, 1)
        copies = np.arange(down)[:, None, None] * rows * shape[1] + np.arange(across)[:, None] * columns
        return Entries.of((copies + (row * shape[1] + column)).reshape(-1), np.tile(values, down * across), shape)

    return SparseValue(shape, entries)


def _gathered(query: _Query) -> SparseValue | None:
    source, chosen, value = query.sparse(0), query.numbers(1), query.node.inputs[1]
    count = _length(value)
    if source is None or chosen is None or count is None or len(source.shape) != 2 or query.integer("axis", 0) != 0:
        return None
    rows, columns = source.shape
    shape = (count, columns)

    def entries() -> Entries:
        (positions, values), order = source.entries(), chosen().astype(np.int64)
        _check_count(rows, len(positions))
        if len(order) and not -rows <= order.min() <= order.max() < rows:
            raise ValueError(f"row {order.max() if order.max() >= rows else order.min()} of {rows}")
        order = np.where(order < 0, order + rows, order)
        pointers = np.searchsorted(positions, np.arange(rows + 1, dtype=np.int64) * columns)
        counts = np.diff(pointers)[order]
        _check_count(int(counts.sum()), len(positions))
        targets = np.repeat(np.arange(count), counts)
        taken = np.repeat(pointers[:-1][order] - (np.cumsum(counts) - counts), counts) + np.arange(len(targets))
        return Entries(targets * columns + positions[taken] % max(columns, 1), values[taken])

    return SparseValue(shape, entries)


def _length(value: onnx_ir.Value | None) -> int | None:
    """Return the length of a constant list, maybe cast."""
    while value is not None and value.const_value is None and (node := value.producer()) is not None:
        value = node.inputs[0] if (node.domain, node.op_type) == ("", "Cast") else None
    tensor = None if value is None else value.const_value
    return int(tensor.shape.numpy()[0]) if tensor is not None and len(tensor.shape) == 1 else None


def _same(query: _Query) -> SparseValue | None:
    return query.sparse(0)


RULES: Final[Mapping[str, Callable[[_Query], SparseValue | None]]] = MappingProxyType(
    {
        "ConstantOfShape": _zeros,
        "Gather": _gathered,
        "Identity": _same,
        "Reshape": _reshaped,
        "ScatterElements": _scattered,
        "Tile": _tiled,
        "Transpose": _transposed,
    }
)
