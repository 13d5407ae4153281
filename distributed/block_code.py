"""The native functions of a rank for one width of blocks: compiled once, kept on disk, called on tables of buffers."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from redpebble.distributed.part_file import Part
from redpebble.lowering.block_layout import PACK, PACK_ARITY, UNPACK, UNPACK_ARITY, block_floats
from redpebble.runtime.artefact import Artefact
from redpebble.runtime.cache import cache_key, load, store
from redpebble.runtime.machine_code import MachineCode, host_target, load_object
from redpebble.runtime.memory import address_of, aligned_bytes, aligned_copy, pointer_table

WIDTHS: Final = (1, 8, 16, 32, 48, 64)
"""Samples of a block; code is made for the width that a call needs."""

STEP_ARITY: Final = (4, 2)


@dataclass(frozen=True)
class CodeRequest:
    """What code is made of, and where it is kept."""

    part: Part
    sha256: str
    threads: int
    cache: Path | None


def width_for(samples: int, widest: int) -> int:
    """Return the width of blocks for tiles of `samples`, at most `widest`."""
    return next((width for width in WIDTHS if samples <= width < widest), widest)


class BlockCode:
    """Functions for blocks of `width` samples."""

    def __init__(self, request: CodeRequest, width: int) -> None:
        """Load the functions, or compile them."""
        self.width, self._threads = width, request.threads
        artefact = _artefact(request, width)
        self._constants = [aligned_copy(array) for array in artefact.program.constants]
        self._table = pointer_table(self._constants)
        arities = {step.symbol: STEP_ARITY for step in artefact.program.steps}
        arities |= {PACK: PACK_ARITY, UNPACK: UNPACK_ARITY}
        self._code: MachineCode = load_object(artefact.image, arities)
        self._scratch = [aligned_bytes(artefact.program.scratch_bytes) for _ in range(request.threads)]
        self._pool = ThreadPoolExecutor(request.threads) if request.threads > 1 else None
        self._count: NDArray[np.int64] = np.zeros(1, dtype=np.int64)

    def run(self, function: str, buffers: NDArray[np.uint64], samples: int) -> None:
        """Run a function on `samples` samples; threads share the blocks."""
        call, table, constants = self._code.functions[function], address_of(buffers), address_of(self._table)
        blocks = -(-samples // self.width)
        if self._pool is None or blocks == 1:
            call(table, constants, None, address_of(self._scratch[0]), 0, samples)
            return
        share = -(-blocks // self._threads) * self.width
        starts = range(0, samples, share)
        futures = [
            self._pool.submit(call, table, constants, None, address_of(scratch), start, min(start + share, samples))
            for start, scratch in zip(starts, self._scratch, strict=False)
        ]
        for future in futures:
            future.result()

    def pack(self, values: int, rows: NDArray[np.int64], message: NDArray[np.uint8], shape: tuple[int, int]) -> int:
        """Write rows of a buffer of (features, blocks) into a message; return how many are not left out."""
        features, blocks = shape
        stride = block_floats(features, self.width)
        pointers = (values, address_of(rows), address_of(message), address_of(self._count))
        self._code.functions[PACK](*pointers, len(rows), blocks, stride)
        return int(self._count[0])

    def unpack(self, message: NDArray[np.uint8], values: int, rows: tuple[int, int], shape: tuple[int, int]) -> int:
        """Read (number, first) rows of a buffer of (features, blocks) from a message; return how many it holds."""
        (number, first), (features, blocks) = rows, shape
        stride = block_floats(features, self.width)
        self._code.functions[UNPACK](
            address_of(message), values, address_of(self._count), number, blocks, stride, first
        )
        return int(self._count[0])


def _artefact(request: CodeRequest, width: int) -> Artefact:
    cpu = host_target()
    key = cache_key(bytes.fromhex(request.sha256), cpu, f"blocks of {width}")
    artefact = load(request.cache, key) if request.cache is not None else None
    if artefact is None:
        # a compiler takes longer to import than a rank needs to start
        from redpebble.distributed.compiling import compile_blocks

        artefact = compile_blocks(request.part, cpu, width)
        if request.cache is not None:
            store(request.cache, key, artefact)
    return artefact
