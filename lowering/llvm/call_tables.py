"""The tables that generated code reads: sizes of the call, and packed constants."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.dialect.symbolic_sizes import Size, SymbolicShape
from redpebble.lowering.llvm.builder import I64, POINTER, entry_of, i64

VECTOR_ROOM = 16
"""Floats of the widest vector."""


@dataclass
class SizeTable:
    """Sizes by index; a size that is a number in every call is no entry but an immediate."""

    shapes: Mapping[SSAValue, SymbolicShape]
    entries: list[Size] = field(default_factory=list[Size])

    def value(self, builder: ir.IRBuilder, table: ir.Value, size: Size) -> ir.Value:
        """Return a size as a 64-bit value."""
        if size.constant is not None:
            return i64(size.constant)
        if size not in self.entries:
            self.entries.append(size)
        return entry_of(builder, table, self.entries.index(size), I64)


@dataclass
class ConstantTable:
    """Packed arrays by index; what is asked for twice under one key is packed once."""

    arrays: list[NDArray[np.generic]] = field(default_factory=list[NDArray[np.generic]])
    known: dict[Hashable, list[int]] = field(default_factory=dict[Hashable, list[int]])

    def has(self, key: Hashable) -> bool:
        """Return whether `key` has been packed."""
        return key in self.known

    def add_values(self, key: Hashable, values: NDArray[np.float32]) -> None:
        """Add one array of floats, with zeros behind it so that a whole vector may be read at any of them."""
        self.add(key, [np.pad(values.ravel(), (0, VECTOR_ROOM))])

    def add(self, key: Hashable, arrays: Sequence[NDArray[np.generic]]) -> None:
        """Add the arrays of `key`."""
        start = len(self.arrays)
        self.arrays += [np.ascontiguousarray(array) for array in arrays]
        self.known[key] = list(range(start, len(self.arrays)))

    def pointers(self, builder: ir.IRBuilder, table: ir.Value, key: Hashable) -> list[ir.Value]:
        """Return the addresses of the arrays of `key`."""
        return [entry_of(builder, table, index, POINTER) for index in self.known[key]]

    def share_pointers(
        self, builder: ir.IRBuilder, table: ir.Value, key: Hashable, number: ir.Value, shares: int
    ) -> list[ir.Value]:
        """Return the addresses of the arrays of one of `shares` shares of `key`, all of as many arrays."""
        indices = self.known[key]
        count = len(indices) // shares
        first = builder.gep(table, [builder.mul(number, i64(count))], source_etype=POINTER)
        return [entry_of(builder, first, index, POINTER) for index in indices[:count]]
