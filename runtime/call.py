"""Calls of a loaded network in this process: native code on memory of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ..lowering.calls.pool import PoolFrame
from ..lowering.calls.table import Frame, Header, Split
from ..lowering.program import Program
from .call_code import call_code
from .loaded_network import LoadedNetwork
from .memory import address_of, aligned_bytes
from .thread_pool import NativeCall, ThreadPool


@dataclass(frozen=True)
class Call:
    """Memory for one call at a time, and the call itself."""

    buffers: NDArray[np.int64]
    """Addresses of inputs, outputs, and buffers between steps; the first ones are written before each call."""
    addresses: memoryview
    """The same memory, written to in half of the time."""
    native: NativeCall
    """Runs the code on what `buffers` says."""
    frame: int
    """The address of the words of the call."""
    is_parallel: bool
    """Whether several threads work on a step."""
    splits: NDArray[np.int64]
    """[steps, words of `Split`]: how each step is given to threads."""
    owned: tuple[object, ...]
    """Owners of the memory that addresses point to; the network, which a call needs, may be gone."""


def new_call(network: LoadedNetwork, symbols: Mapping[str, int], pool: ThreadPool | None) -> Call:
    """Return a call with sizes of some values, by the threads of a pool where there is enough to do for them.

    Raises:
        ValueError: the sizes do not fit each other.
    """
    code, header = call_code().functions, network.table
    buffers = int(header[Header.inputs] + header[Header.outputs] + header[Header.temporaries])
    parts = {
        Frame.symbols: len(symbols),
        Frame.values: int(header[Header.expressions]),
        Frame.buffers: buffers,
        Frame.splits: Split.word_count * int(header[Header.steps]),
    }
    starts = [*accumulate(parts.values(), initial=PoolFrame.word_count)]
    words = aligned_bytes(8 * starts[-1]).view(np.int64)
    frame = address_of(words)
    for part, start in zip(parts, starts, strict=False):
        words[part] = frame + 8 * start
    words[Frame.header] = address_of(network.table)
    words[Frame.threads] = 1 if pool is None else pool.threads
    words[PoolFrame.pool] = 0 if pool is None else pool.address
    words[starts[0] : starts[1]] = list(symbols.values())
    code["prepare"](frame)
    if words[PoolFrame.status]:
        raise ValueError(_problem(network.program, symbols))
    memory = aligned_bytes(int(words[PoolFrame.bytes]))
    code["place"](frame, address_of(memory))
    splits = words[starts[3] : starts[4]].reshape(-1, Split.word_count)
    is_parallel = bool((splits[:, Split.workers] > 1).any())
    native = NativeCall(partial(code["run_in_pool" if is_parallel else "run"], frame))
    if pool is not None and is_parallel:
        pool.add(native)
    addresses = words[starts[2] : starts[3]]
    return Call(addresses, addresses.data, native, frame, is_parallel, splits, (words, memory, network, pool))


def _problem(program: Program, symbols: Mapping[str, int]) -> str:
    """Return the error in the sizes of a call; native code only detects that there is one.

    Raises:
        ValueError: a size is no whole number.
    """
    for first, second, or_one, plus in program.equal:
        left, right = first.evaluate(symbols), second.evaluate(symbols) + plus.evaluate(symbols)
        if left not in (right, 1 if or_one else right):
            one = " or 1 for the former" if or_one else ""
            both = f"{second} + {plus}" if plus.constant != 0 else f"{second}"
            return f"expected equal sizes{one}, got {first} = {left} and {both} = {right}"
    for size, least in program.least:
        found = size.evaluate(symbols)
        if found < least:
            return f"size {size}: expected {least} or more, as the network reads place {least - 1}, got {found}"
    sizes = [*program.sizes, *(one.size for one in program.temporaries), *(step.rows for step in program.steps)]
    for size in sizes:
        if size is not None:
            size.evaluate(symbols)
    return "the sizes of the inputs are too large"
