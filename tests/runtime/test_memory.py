"""Memory for native code."""

import numpy as np

from redpebble.lowering.llvm.values import ALIGNMENT
from redpebble.runtime.memory import FETCHED_AHEAD, LARGE, address_of, aligned_copies


def test_small_arrays_lie_together_with_memory_behind_them() -> None:
    sizes = (3, 0, 17, LARGE // 4, 1)
    arrays = [np.arange(size, dtype=np.float32) for size in sizes]
    copies = aligned_copies(arrays)
    for array, copy in zip(arrays, copies, strict=True):
        assert np.array_equal(array, copy)
        assert address_of(copy) % ALIGNMENT == 0 or not array.size
    small = [copy for copy in copies if 0 < copy.nbytes < LARGE]
    assert np.diff([address_of(copy) for copy in small]).tolist() == [ALIGNMENT, 2 * ALIGNMENT]
    block = small[-1].base
    assert isinstance(block, np.ndarray)
    assert address_of(block) + block.nbytes >= address_of(small[-1]) + FETCHED_AHEAD
