"""The tables that generated code reads: sizes of the call, and packed constants."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.constants import constant_array
from ...dialect.symbolic_sizes import Size, SymbolicShape
from ...foundation.threads import in_threads
from .values import Bytes, Longs, Number, Pointers

VECTOR_ROOM = 16
"""Floats of the widest vector."""


@dataclass
class SizeTable:
    """Sizes by index; a size that is a number in every call is no entry but an immediate."""

    shapes: Mapping[SSAValue, SymbolicShape]
    entries: dict[Size, int] = field(default_factory=dict[Size, int])

    def number(self, table: Longs, size: Size) -> Number:
        """Return a size of the call."""
        if size.constant is not None:
            return table.constant(size.constant)
        return table[self.entries.setdefault(size, len(self.entries))]


Packing = Callable[[Operation | None], Sequence[NDArray[np.generic]]]
"""Makes the packed arrays of an op; it holds nothing of the op itself, so that it serves another network as well."""


class Recipe(NamedTuple):
    """Recipe of packed arrays: the packing, and the op of the module that it takes, or None."""

    pack: Packing
    op: Operation | None
    array_count: int
    """The number of arrays."""


@dataclass
class ConstantTable:
    """Packed arrays by index; arrays of one key are packed once."""

    arrays: list[NDArray[np.generic]] = field(default_factory=list[NDArray[np.generic]])
    known: dict[Hashable, list[int]] = field(default_factory=dict[Hashable, list[int]])
    recipes: list[Recipe] = field(default_factory=list[Recipe])

    def indices(self, key: Hashable, pack: Packing, op: Operation | None = None) -> list[int]:
        """Return the indices of the arrays of `key`, which `pack` makes of an op."""
        if key not in self.known:
            start, arrays = len(self.arrays), contiguous(pack(op))
            self.arrays += arrays
            self.recipes.append(Recipe(pack, op, len(arrays)))
            self.known[key] = list(range(start, len(self.arrays)))
        return self.known[key]

    def pointers(self, table: Pointers, key: Hashable, pack: Packing, op: Operation | None = None) -> list[Bytes]:
        """Return the addresses of the arrays of `key`, which `pack` makes of an op."""
        return [table[index] for index in self.indices(key, pack, op)]

    def share_pointers(self, table: Pointers, indices: Sequence[int], number: Number, shares: int) -> list[Bytes]:
        """Return the addresses of the arrays of one of `shares` shares, all of as many arrays, that lie at indices."""
        count = len(indices) // shares
        first = table.at(number * count)
        return [first[index] for index in indices[:count]]


def contiguous(arrays: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    """Return arrays as code reads them."""
    return [np.ascontiguousarray(array) for array in arrays]


def packed_in_threads(recipes: Sequence[Recipe]) -> list[NDArray[np.generic]] | None:
    """Return the arrays of recipes, one after the other; None where one does not give as many as it says."""
    packed = in_threads(lambda recipe: contiguous(recipe.pack(recipe.op)), recipes)
    if any(len(arrays) != recipe.array_count for arrays, recipe in zip(packed, recipes, strict=True)):
        return None
    return [array for arrays in packed for array in arrays]


def with_room(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return floats with zeros behind them, so that a whole vector may be read at any of them."""
    return np.pad(values.ravel(), (0, VECTOR_ROOM))


def values_of_constant(op: Operation | None) -> list[NDArray[np.float32]]:
    """Return the floats of a constant as code reads them.

    Raises:
        ValueError: the op is none.
    """
    array = constant_array(op.results[0]) if op is not None else None
    if array is None:
        raise ValueError("code reads a value that is no constant")
    return [with_room(array)]
