"""Networks whose memory stands against pages that nobody may touch, so that an access out of bounds ends the process.

Inputs, outputs, packed arrays, temporaries and scratch memory get pages of their own, with what the code is promised
and nothing more: the bytes of inputs and outputs wherever they begin, and for all else the bytes from a cache line on.
What nothing has been written to holds no numbers.

As a plugin of pytest (`-p tests.support.guarded_memory --guard end`) it does that to all networks of all tests.
"""

import ctypes
import mmap
import weakref
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import prod

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.lowering.calls.pool import PoolFrame
from redpebble.lowering.calls.table import Frame
from redpebble.lowering.llvm.values import ALIGNMENT, FLOAT_BYTES
from redpebble.runtime import loaded_network, network
from redpebble.runtime.call import Call, new_call
from redpebble.runtime.loaded_network import LoadedNetwork
from redpebble.runtime.memory import address_of
from redpebble.runtime.network import PythonCall
from redpebble.runtime.thread_pool import ThreadPool

PAGE = mmap.PAGESIZE
NO_ACCESS = 0  # PROT_NONE
NOT_WRITTEN = 0xFF
"""Each byte of memory before it is written to: floats are no numbers."""

C = ctypes.CDLL(None, use_errno=True)
C.mmap.restype = ctypes.c_void_p
C.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
C.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
C.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Side(StrEnum):
    """Where the page that nobody may touch stands."""

    BEGIN = "begin"
    END = "end"


def guarded(size: int, side: Side, alignment: int = ALIGNMENT) -> NDArray[np.uint8]:
    """`size` bytes that begin at a multiple of `alignment`, and no byte further from a guard than that takes.

    The page behind them is one as well, where the guard stands before them, and the other way round.
    """
    pages = -(-max(size, 1) // PAGE)
    whole = (pages + 2) * PAGE
    start = C.mmap(None, whole, NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if start in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), f"no memory for {whole} bytes")
    if C.mprotect(start + PAGE, pages * PAGE, mmap.PROT_READ | mmap.PROT_WRITE):
        raise OSError(ctypes.get_errno(), "pages cannot be opened")
    offset = 0 if side is Side.BEGIN else (pages * PAGE - size) // alignment * alignment
    block = (ctypes.c_uint8 * size).from_address(start + PAGE + offset)
    weakref.finalize(block, C.munmap, start, whole)
    memory = np.ctypeslib.as_array(block)
    memory[...] = NOT_WRITTEN
    return memory


def guarded_copy(array: NDArray[np.generic], side: Side, alignment: int = ALIGNMENT) -> NDArray[np.generic]:
    """An array beside a guard."""
    memory = guarded(array.nbytes, side, alignment).view(array.dtype).reshape(array.shape)
    memory[...] = array
    return memory


def guarded_call(side: Side, loaded: LoadedNetwork, symbols: Mapping[str, int], pool: ThreadPool | None = None) -> Call:
    """A call all of whose memory is guarded; arrays of the caller are copied there and back."""
    call = new_call(loaded, symbols, pool)
    program, blocks = loaded.program, list[NDArray[np.uint8]]()
    ends = [*program.inputs, *program.outputs]
    sizes = [np.dtype(tensor.dtype).itemsize * prod(size.evaluate(symbols) for size in tensor.shape) for tensor in ends]
    words = np.ctypeslib.as_array((ctypes.c_int64 * PoolFrame.word_count).from_address(call.frame))
    for index, temporary in enumerate(program.temporaries, len(ends)):
        blocks.append(guarded(FLOAT_BYTES * temporary.size.evaluate(symbols), side))
        call.buffers[index] = address_of(blocks[-1])
    memory: NDArray[np.uint8] = call.owned[1]  # pyright: ignore[reportAssignmentType]
    scratch = address_of(memory) + int(words[PoolFrame.bytes]) - int(words[Frame.scratch])
    blocks.append(guarded(scratch, side))
    words[Frame.scratch] = address_of(blocks[-1])
    run = call.native.run

    def guarded_run() -> None:
        addresses = [int(address) for address in call.buffers[: len(ends)]]
        for index, (tensor, size) in enumerate(zip(ends, sizes, strict=True)):
            copy = guarded(size, side, np.dtype(tensor.dtype).itemsize)
            ctypes.memmove(address_of(copy), addresses[index], size)
            call.buffers[index] = address_of(copy)
            blocks.append(copy)
        run()
        for index, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
            if index >= len(program.inputs):
                ctypes.memmove(address, int(call.buffers[index]), size)
            call.buffers[index] = address
        del blocks[-len(ends) :]

    call.native.run = guarded_run
    return call


def guard(patch: pytest.MonkeyPatch, side: Side) -> None:
    """Have all networks that are loaded from now on live beside guards."""

    def call(loaded: LoadedNetwork, symbols: Mapping[str, int], pool: ThreadPool | None) -> Call:
        return guarded_call(side, loaded, symbols, pool)

    def copy(array: NDArray[np.generic]) -> NDArray[np.generic]:
        return guarded_copy(array, side)

    def no_shortcut(*_: object) -> Sequence[PythonCall]:
        return []

    patch.setattr(loaded_network, "aligned_copy", copy)
    patch.setattr(network, "new_call", call)
    patch.setattr(network, "python_call", no_shortcut)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--guard`."""
    parser.addoption("--guard", choices=[*Side], required=True, help="where the guard stands")


def pytest_configure(config: pytest.Config) -> None:
    """Guard everything."""
    guard(pytest.MonkeyPatch(), Side(config.getoption("guard")))
