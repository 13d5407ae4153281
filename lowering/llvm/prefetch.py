"""Fetching of memory into the cache ahead of its use."""

from llvmlite import ir

from redpebble.lowering.llvm.builder import ALIGNMENT, I32, POINTER, VOID, byte_at, i64


def fetch_lines(builder: ir.IRBuilder, address: ir.Value, lines: int) -> None:
    """Emit the fetching of cache lines into the first level; `address` may be anything."""
    name = "llvm.prefetch.p0"
    known = builder.module.globals.get(name)
    if known is None:
        known = ir.Function(builder.module, ir.FunctionType(VOID, [POINTER, I32, I32, I32]), name)
    to_read, keep_near, data = (ir.Constant(I32, value) for value in (0, 3, 1))
    for line in range(lines):
        builder.call(known, [byte_at(builder, address, i64(ALIGNMENT * line)), to_read, keep_near, data])
