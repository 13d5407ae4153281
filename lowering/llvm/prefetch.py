"""Fetching of memory into the cache ahead of its use."""

from llvmlite import ir

from .builder import ALIGNMENT, I32, POINTER, VOID, byte_at, i64
from .intrinsics import intrinsic


def fetch_lines(builder: ir.IRBuilder, address: ir.Value, lines: int) -> None:
    """Emit the fetching of cache lines into the first level; `address` may be anything."""
    fetch = intrinsic(builder, "llvm.prefetch.p0", VOID, [POINTER, I32, I32, I32])
    to_read, keep_near, data = (ir.Constant(I32, value) for value in (0, 3, 1))
    for line in range(lines):
        builder.call(fetch, [byte_at(builder, address, i64(ALIGNMENT * line)), to_read, keep_near, data])
