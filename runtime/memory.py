"""Memory for native code: aligned buffers, and pointer tables to them."""

import ctypes
import math
import mmap
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ..lowering.llvm.values import ALIGNMENT

MemoryBlock = NDArray[np.uint8]

FETCHED_AHEAD: Final = 4096
"""Bytes that kernels fetch ahead of the weights that they read."""

LARGE: Final = 1 << 18
"""Bytes of weights from which on it does not matter what stands behind them."""

FLOAT32: Final = np.dtype(np.float32)
"""The type of nearly all arrays: numpy has one object for it."""

# names of the module, since every call of a network asks for addresses
addressof = ctypes.addressof
first_byte = cast("Callable[[NDArray[np.generic]], ctypes.c_char]", ctypes.c_char.from_buffer)


def aligned_bytes(size: int) -> MemoryBlock:
    """Return `size` bytes (one at least) that start at a cache line; their content is undefined."""
    return _aligned(_new_block(max(size, 1)), max(size, 1))


def zeros_on_demand(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return zeros of a shape for which the system finds memory only where it is written to."""
    size = FLOAT32.itemsize * math.prod(shape)
    if size < LEAST_ON_DEMAND_BYTES:
        return np.zeros(shape, dtype=np.float32)
    # private, so that what is only read stays one page of zeros
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # large pages would be cleared for a row written to each; a system without them refuses
        with suppress(OSError):
            pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype=np.float32).reshape(shape)


def aligned_copy(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the array itself, of any shape, where it starts at a cache line, else a copy that does."""
    if address_of(array) % ALIGNMENT == 0 and array.flags.c_contiguous:
        return array
    return _copied(array, aligned_bytes(array.nbytes)[: array.nbytes])


def aligned_copies(arrays: Sequence[NDArray[np.generic]]) -> tuple[NDArray[np.generic], ...]:
    """Return arrays that start at a cache line, each itself or a copy; small ones together, in memory that is there.

    Kernels fetch weights ahead, and beyond the last one. Where no page is, every try walks the page table: small dense
    layers took 1.3 to 3 times as long, in some processes.
    """
    starts = list(accumulate((_room_of(array) for array in arrays), initial=0))
    together = aligned_bytes(starts[-1] + FETCHED_AHEAD)
    together[starts[-1] :] = 0
    return tuple(
        _copied(array, together[start : start + array.nbytes]) if _room_of(array) else aligned_copy(array)
        for array, start in zip(arrays, starts[:-1], strict=True)
    )


def _room_of(array: NDArray[np.generic]) -> int:
    return -(-array.nbytes // ALIGNMENT) * ALIGNMENT if array.nbytes < LARGE else 0


def _copied(array: NDArray[np.generic], target: MemoryBlock) -> NDArray[np.generic]:
    copy = target.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def address_of(array: NDArray[np.generic]) -> int:
    """Return the address of the first value of an array of any shape."""
    try:
        # a quarter of the time of numpy's own ways, which make an object or a dictionary first
        return addressof(first_byte(array))
    except (TypeError, ValueError):  # read-only, or without any value
        return int(array.__array_interface__["data"][0])


def pointer_table(arrays: Sequence[NDArray[np.generic]]) -> NDArray[np.uint64]:
    """Return the addresses [arrays] of `arrays`, of any shape; the caller keeps them alive."""
    return np.array([address_of(array) for array in arrays], dtype=np.uint64)


def return_free_memory() -> None:
    """Give memory that is free back to the system, where its C library keeps it for later: compiling needs much."""
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _new_block(size: int) -> MemoryBlock:
    return np.empty(size + ALIGNMENT, dtype=np.uint8)


def _aligned(block: MemoryBlock, size: int) -> MemoryBlock:
    start = -address_of(block) % ALIGNMENT
    return block[start : start + size]


def _first_with_holders(blocks: deque[MemoryBlock]) -> tuple[MemoryBlock, int]:
    """Take the first block from `blocks`; return it and its reference count."""
    block = blocks.popleft()
    return block, sys.getrefcount(block)


SOLE_HOLDER: Final = _first_with_holders(deque([np.empty(0, dtype=np.uint8)]))[1]
"""References that `_first_with_holders` finds when nobody else holds any; Python's versions count differently."""

LEAST_KEPT_BYTES: Final = 1 << 19
"""Size from which memory is kept; the system's allocator finds less faster than we do: whole calls with outputs of 16
to 256 KiB take 0.5 to 0.9 of the time."""

LEAST_ON_DEMAND_BYTES: Final = 1 << 14
"""Size from which zeros are worth a mapping of their own."""

MOST_KEPT: Final = 3
"""Arrays of one shape whose memory is kept."""


class OutputMemory:
    """Arrays of one shape; the memory of those that nobody holds any more is taken again.

    The system hands out new memory page by page, each when it is touched first, which may take longer than a layer.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any] = FLOAT32) -> None:
        """Take no memory yet."""
        self.shape = shape
        self.dtype = dtype
        self._size = dtype.itemsize * math.prod(shape)
        self.is_small = self._size < LEAST_KEPT_BYTES
        self._kept: deque[MemoryBlock] = deque()

    def take(self) -> NDArray[Any]:
        """Return an array of the output's shape that nobody else holds; its content is undefined."""
        if self.is_small:
            return np.empty(self.shape, dtype=self.dtype)
        block = self._unused()
        # arrays that are views, and views of those, hold the block
        array = _aligned(block, self._size).view(self.dtype).reshape(self.shape)
        if len(self._kept) < MOST_KEPT:
            self._kept.append(block)
        return array

    def _unused(self) -> MemoryBlock:
        """Return memory that nobody holds; a thread that looks at some has taken it out of the others' sight."""
        for _ in range(len(self._kept)):
            try:
                block, holders = _first_with_holders(self._kept)
            except IndexError:  # other threads are looking at all
                break
            if holders == SOLE_HOLDER:
                return block
            self._kept.append(block)
        return _new_block(self._size)
