"""Memory for native code: aligned buffers, and pointer tables to them."""

import ctypes
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from redpebble.lowering.emission import ALIGNMENT


def aligned_bytes(size: int) -> NDArray[np.uint8]:
    """Return `size` bytes (one at least) that start at a cache line; their content is undefined."""
    room = np.empty(max(size, 1) + ALIGNMENT, dtype=np.uint8)
    start = -address_of(room) % ALIGNMENT
    return room[start : start + max(size, 1)]


def aligned_copy(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the array itself where it starts at a cache line, else a copy that does."""
    if address_of(array) % ALIGNMENT == 0 and array.flags.c_contiguous:
        return array
    target = aligned_bytes(array.nbytes)[: array.nbytes].view(array.dtype).reshape(array.shape)
    target[...] = array
    return target


def address_of(array: NDArray[np.generic]) -> int:
    """Return the address of an array's first value."""
    try:
        # a third of the time of numpy's own ways, which make an object or a dictionary first
        return ctypes.addressof(ctypes.c_char.from_buffer(cast("bytearray", array)))
    except (TypeError, ValueError):  # read-only, or without any value
        return int(array.__array_interface__["data"][0])


def pointer_table(arrays: Sequence[NDArray[np.generic]]) -> NDArray[np.uint64]:
    """Return the addresses of `arrays`; the caller keeps the arrays alive."""
    return np.array([address_of(array) for array in arrays], dtype=np.uint64)
