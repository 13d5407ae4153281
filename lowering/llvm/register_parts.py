"""Vectors of several registers of a CPU: their parts, and instructions on one register after the other."""

from collections.abc import Callable, Sequence

from llvmlite import ir

from .vectors import int_constants


def part_of(builder: ir.IRBuilder, vector: ir.Value, start: int, count: int) -> ir.Value:
    """Return some lanes of a vector."""
    return builder.shuffle_vector(vector, vector, int_constants(range(start, start + count)))


def joined(builder: ir.IRBuilder, parts: Sequence[ir.Value]) -> ir.Value:
    """Return vectors of one type, a power of two of them, as one."""
    kind, rest = parts[0].type, list(parts)
    assert isinstance(kind, ir.VectorType)
    size = kind.count
    while len(rest) > 1:
        size *= 2
        mask = int_constants(range(size))
        rest = [builder.shuffle_vector(*pair, mask) for pair in zip(rest[::2], rest[1::2], strict=True)]
    return rest[0]


def in_registers(
    builder: ir.IRBuilder,
    lanes: int,
    operands: Sequence[ir.Value],
    instruction: Callable[[Sequence[ir.Value]], ir.Value],
) -> ir.Value:
    """Return what an instruction on registers of so many lanes makes of vectors of a power of two of registers."""
    kind = operands[0].type
    assert isinstance(kind, ir.VectorType)
    if kind.count == lanes:
        return instruction(operands)
    starts = range(0, kind.count, lanes)
    return joined(builder, [instruction([part_of(builder, one, at, lanes) for one in operands]) for at in starts])
