"""The onnxruntime that has asked: its tables of functions, and its memory.

Words that it reads and keeps lie in that memory, since they may have to outlive this interpreter.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

from ..custom_ops.node import OrtFunctions
from ..native.api import SHAPE_VERSION, Slot
from ..native.ep_api import EP_VERSION, WARNING, GraphSlot


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


def warn(functions: OrtFunctions, logger: int, line: str) -> None:
    """Give a line to a logger of onnxruntime as a warning, which it shows unless a session asks for less."""
    text, location = f"redpebble: {line}".encode(), (__file__.encode(), 0, b"redpebble")
    functions.call(GraphSlot.Logger_LogMessage, logger, WARNING, text, *location)


@dataclass(frozen=True)
class Runtime:
    """The onnxruntime that has asked: its functions, and the one that only newer versions have, or 0."""

    functions: OrtFunctions
    ep_functions: OrtFunctions
    memory: OrtMemory
    shape_of: int


def runtime_of(base: int, minor: int) -> Runtime:
    """Return the functions behind an `OrtApiBase` of onnxruntime 1.`minor`."""
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(word_at(base))
    functions = OrtFunctions(get_api(EP_VERSION) or 0)
    get_ep_api = ctypes.CFUNCTYPE(ctypes.c_void_p)(word_at(functions.address, GraphSlot.GetEpApi))
    slot = Slot.GetTensorElementTypeAndShapeDataReference
    shape_of = word_at(get_api(SHAPE_VERSION) or 0, slot) if minor >= SHAPE_VERSION else 0
    return Runtime(functions, OrtFunctions(get_ep_api() or 0, functions.address), OrtMemory(functions), shape_of)
