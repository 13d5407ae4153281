"""What one call needs for itself: buffers between steps, scratch memory, and the tables that lead to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from redpebble.lowering.program import Program
from redpebble.lowering.threads.thread_pool import CALL_WORDS, STEP_WORDS
from redpebble.runtime.call_sizes import CallSizes
from redpebble.runtime.jit import MachineCode
from redpebble.runtime.memory import address_of, aligned_bytes, pointer_table
from redpebble.runtime.thread_pool import ThreadPool
from redpebble.runtime.work_split import Split, split_step


@dataclass(frozen=True)
class LoadedNetwork:
    """A program, its code in this process, and the table of its packed constants."""

    program: Program
    code: MachineCode
    constants: Sequence[NDArray[np.generic]]
    constant_table: NDArray[np.uint64]


@dataclass(frozen=True)
class Workspace:
    """Memory of one call at a time, and the call itself."""

    buffers: NDArray[np.uint64]
    """Addresses of inputs, outputs, and buffers between steps; the first ones are written before each call."""
    call: Callable[[], object]
    """Runs the code on what `buffers` says."""
    owned: tuple[NDArray[np.generic], ...]
    """What addresses point to."""
    loaded: LoadedNetwork
    """The code and the weights, which a call needs though its network may be gone."""


def new_workspace(loaded: LoadedNetwork, sizes: CallSizes, pool: ThreadPool | None) -> Workspace:
    """Return memory for a call of some sizes, by the threads of a pool where there is enough to do for them."""
    program = loaded.program
    fixed = len(program.inputs) + len(program.outputs)
    temporaries = aligned_bytes(sizes.temporary_bytes)
    buffers = np.zeros(fixed + len(program.temporaries), dtype=np.uint64)
    for index, offset in enumerate(sizes.temporary_offsets):
        buffers[fixed + index] = address_of(temporaries) + offset
    threads = pool.threads if pool is not None else 1
    splits = [split_step(step, rows, threads) for step, rows in zip(program.steps, sizes.rows, strict=True)]
    parallel = any(split.is_parallel for split in splits)
    areas = [aligned_bytes(program.scratch_bytes) for _ in range(threads if parallel else 1)]
    tables = [address_of(table) for table in (buffers, loaded.constant_table, sizes.sizes)]
    alone = partial(loaded.code.functions["run"], *tables, address_of(areas[0]))
    if pool is None or not parallel:
        return Workspace(buffers, alone, (temporaries, *areas, sizes.sizes), loaded)
    area_table, step_table = pointer_table(areas), _step_table(loaded, splits)
    words = [address_of(step_table), len(splits), *tables, address_of(area_table)]
    call = np.array(words, dtype=np.uint64)
    assert len(call) == CALL_WORDS
    owned = (temporaries, *areas, sizes.sizes, area_table, step_table, call)
    return Workspace(buffers, partial(_run_in_pool, pool, address_of(call), alone), owned, loaded)


def _run_in_pool(pool: ThreadPool, call: int, alone: Callable[[], object]) -> None:
    """Run a call in threads, or in this one while another call has them."""
    if not pool.try_run(call):
        alone()


def _step_table(loaded: LoadedNetwork, splits: Sequence[Split]) -> NDArray[np.int64]:
    """Return the words of every step, see `lowering/thread_pool.py`."""
    addresses, words = loaded.code.addresses, list[int]()
    for step, split in zip(loaded.program.steps, splits, strict=True):
        shared = addresses[step.tiled.shared] if step.tiled is not None and step.tiled.shared is not None else 0
        head = [addresses[step.symbol], shared, *split.together]
        assert len(head) == STEP_WORDS
        words += head
        for own in split.alone:
            words += own
    return np.array(words, dtype=np.int64)
