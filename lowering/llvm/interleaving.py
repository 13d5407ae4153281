"""Shuffles that interleave two vectors within quarters of 16 bytes, as unpacking instructions do."""

from llvmlite import ir

from ...kernels.byte_lookup import QUARTER
from .vectors import int_constants


def interleaved(builder: ir.IRBuilder, one: ir.Value, other: ir.Value, size: int, high: bool) -> ir.Value:
    """Return items of `size` bytes of two vectors of bytes in turns, from the low or high halves of their quarters."""
    assert isinstance(one.type, ir.VectorType)
    total = len(one.type)
    chosen = [
        quarter + (QUARTER // 2 if high else 0) + byte // (2 * size) * size + byte % size + total * (byte // size % 2)
        for quarter in range(0, total, QUARTER)
        for byte in range(QUARTER)
    ]
    return builder.shuffle_vector(one, other, int_constants(chosen))
