"""Words that onnxruntime reads and keeps: in its own memory, since they may have to outlive this interpreter."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

from redpebble.ort.custom_ops.node import OrtFunctions
from redpebble.ort.native.api import Slot


@dataclass(frozen=True)
class OrtMemory:
    """Memory of onnxruntime's default allocator."""

    functions: OrtFunctions

    def words(self, count: int, values: Mapping[int, int]) -> int:
        """Return the address of so many words: `values` by their index, all others 0."""
        allocator = self.functions.word(Slot.GetAllocatorWithDefaultOptions)
        address = self.functions.word(Slot.AllocatorAlloc, allocator, 8 * count)
        memory = (ctypes.c_uint64 * count).from_address(address)
        for index in range(count):
            memory[index] = values.get(index, 0)
        return address

    def free(self, address: int) -> None:
        """Give words back."""
        allocator = self.functions.word(Slot.GetAllocatorWithDefaultOptions)
        self.functions.call(Slot.AllocatorFree, allocator, address)


def word_at(address: int, index: int = 0) -> int:
    """Return a word."""
    return ctypes.c_uint64.from_address(address + 8 * index).value


def put_word(address: int, value: int, index: int = 0) -> None:
    """Write a word."""
    ctypes.c_uint64.from_address(address + 8 * index).value = value
