"""The native functions of a rank for one width of blocks: compiled once, kept on disk, called on tables of buffers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, c_int64
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ...kernels.tile_widths import WIDTHS
from ...runtime.jit import MachineCode, host_target, load_object
from ...runtime.loaded_network import loaded_constants
from ...runtime.memory import address_of, aligned_bytes, pointer_table
from ...runtime.store.artefact import Artefact
from ...runtime.store.cache import cache_key, load, store
from ..native.block_layout import (
    PACK,
    PACK_ARITY,
    PACK_CODES,
    UNPACK,
    UNPACK_ARITY,
    UNPACK_CODES,
    block_bytes,
)
from .part_file import Part
from .steps import Buffer, Indices

STEP_ARITY: Final = (4, 2)


@dataclass(frozen=True)
class CodeRequest:
    """Sources of a rank's code, and the folder where it is kept."""

    part: Part
    sha256: str
    threads: int
    cache: Path | None


class BlockBuffer(NamedTuple):
    """A buffer of feature-major blocks: its address, and the features of a block."""

    address: int
    values: Buffer


def width_for(samples: int, widest: int) -> int:
    """Return the width of blocks for tiles of `samples`, at most `widest`; code is made where a call needs it."""
    return next((width for width in WIDTHS if samples <= width < widest), widest)


class BlockCode:
    """Functions for blocks of `width` samples."""

    def __init__(self, request: CodeRequest, width: int) -> None:
        """Load the functions, or compile them."""
        self.width, self._threads = width, request.threads
        artefact = _artefact(request, width)
        self._constants = loaded_constants(artefact.program)
        self._table = pointer_table(self._constants)
        arities = {step.symbol: STEP_ARITY for step in artefact.program.steps}
        arities |= dict.fromkeys((PACK, PACK_CODES), PACK_ARITY) | dict.fromkeys((UNPACK, UNPACK_CODES), UNPACK_ARITY)
        self._code: MachineCode = load_object(artefact.image, arities)
        self._scratch = [aligned_bytes(artefact.program.scratch_bytes) for _ in range(request.threads)]
        self._pool = ThreadPoolExecutor(request.threads) if request.threads > 1 else None
        self._count = c_int64(0)
        self._count_address = addressof(self._count)

    def runner(self, function: str) -> Callable[[int, int], None]:
        """Return a callable that runs a function on a table of buffers, by its address, for a number of samples."""
        call, constants = self._code.functions[function], address_of(self._table)
        scratch, pool = [address_of(memory) for memory in self._scratch], self._pool

        def run(table: int, samples: int) -> None:
            call(table, constants, None, scratch[0], 0, samples)

        def run_shared(table: int, samples: int) -> None:
            assert pool is not None
            blocks = -(-samples // self.width)
            share = -(-blocks // self._threads) * self.width
            futures = [
                pool.submit(call, table, constants, None, memory, start, min(start + share, samples))
                for start, memory in zip(range(0, samples, share), scratch, strict=False)
            ]
            for future in futures:
                future.result()

        return run if pool is None else run_shared

    def pack(self, values: BlockBuffer, rows: Indices, blocks: int, message: int) -> int:
        """Write rows of the first `blocks` blocks into the message at an address; return how many are not left out."""
        pack = self._code.functions[PACK if values.values.zero is None else PACK_CODES]
        layout = self._layout(values.values)
        pack(values.address, address_of(rows), message, self._count_address, len(rows), blocks, *layout)
        return self._count.value

    def unpack(self, message: int, values: BlockBuffer, rows: range, blocks: int) -> int:
        """Read rows of the first `blocks` blocks from the message at an address; return how many it holds."""
        unpack = self._code.functions[UNPACK if values.values.zero is None else UNPACK_CODES]
        layout = self._layout(values.values)
        unpack(message, values.address, self._count_address, len(rows), blocks, *layout, rows.start)
        return self._count.value

    def _layout(self, values: Buffer) -> tuple[int, int]:
        """Return the bytes from one block to the next, and the byte of rows that are left out."""
        return block_bytes(values.features, self.width, values.value_bytes), values.zero or 0


def _artefact(request: CodeRequest, width: int) -> Artefact:
    cpu = host_target()
    key = cache_key(bytes.fromhex(request.sha256), cpu, f"blocks of {width}")
    artefact = load(request.cache, key) if request.cache is not None else None
    if artefact is None:
        # a compiler takes longer to import than a rank needs to start
        from .compile_part import compile_blocks

        artefact = compile_blocks(request.part, cpu, width)
        if request.cache is not None:
            store(request.cache, key, artefact)
    return artefact
