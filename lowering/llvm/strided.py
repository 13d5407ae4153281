"""Row-major work outside tiles: elementwise over any strides, which is also what transposes and concats are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from redpebble.lowering.llvm.builder import FLOAT_BYTES, Code, counted_loop, float_at, i64
from redpebble.lowering.llvm.vectors import Lanes

Combine = Callable[[Lanes, Sequence[ir.Value]], ir.Value]


@dataclass(frozen=True)
class Strided:
    """A buffer and its stride in values along each axis: an integer 0 or 1 where the code may rely on it."""

    pointer: ir.Value
    strides: tuple[ir.Value | int, ...]


def emit_strided(
    code: Code, builder: ir.IRBuilder, sizes: Sequence[ir.Value], buffers: tuple[Strided, Sequence[Strided], Combine]
) -> None:
    """Emit target[i] = combine(operands[i]) for every index i of `sizes`; `buffers` is (target, operands, combine).

    The innermost axis runs in vectors where every operand and the target has stride 0 or 1 there.
    """
    target, operands, combine = buffers
    every = [target, *operands]
    _emit_axis(code, builder, list(sizes), ([buffer.pointer for buffer in every], every, combine))


def _emit_axis(
    code: Code,
    builder: ir.IRBuilder,
    sizes: list[ir.Value],
    state: tuple[list[ir.Value], Sequence[Strided], Combine],
) -> None:
    pointers, buffers, combine = state
    axis = len(buffers[0].strides) - len(sizes)
    if len(sizes) == 1:
        _emit_line(code, builder, sizes[0], (pointers, [buffer.strides[axis] for buffer in buffers], combine))
        return
    with counted_loop(builder, sizes[0]) as index:
        moved = [
            _moved(builder, pointer, index, buffer.strides[axis])
            for pointer, buffer in zip(pointers, buffers, strict=True)
        ]
        _emit_axis(code, builder, sizes[1:], (moved, buffers, combine))


def _emit_line(
    code: Code,
    builder: ir.IRBuilder,
    size: ir.Value,
    state: tuple[list[ir.Value], Sequence[ir.Value | int], Combine],
) -> None:
    pointers, strides, combine = state
    width = code.target.lanes if strides[0] == 1 and all(stride in (0, 1) for stride in strides) else 1
    whole = builder.sub(size, builder.srem(size, i64(width)))
    with counted_loop(builder, whole, width) as index:
        _emit_vector(code.lanes(builder, width), pointers, (index, strides, combine))
    if width > 1:
        with counted_loop(builder, builder.sub(size, whole)) as rest:
            _emit_vector(code.lanes(builder, 1), pointers, (builder.add(whole, rest), strides, combine))


def _emit_vector(
    lanes: Lanes, pointers: list[ir.Value], state: tuple[ir.Value, Sequence[ir.Value | int], Combine]
) -> None:
    index, strides, combine = state
    builder = lanes.builder
    target, *sources = [
        _moved(builder, pointer, index, stride) for pointer, stride in zip(pointers, strides, strict=True)
    ]
    values = [
        lanes.splat(builder.load(source, typ=ir.FloatType())) if stride == 0 else lanes.load(source, FLOAT_BYTES)
        for source, stride in zip(sources, strides[1:], strict=True)
    ]
    lanes.store(combine(lanes, values), target, FLOAT_BYTES)


def _moved(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value, stride: ir.Value | int) -> ir.Value:
    if isinstance(stride, int):
        return pointer if stride == 0 else float_at(builder, pointer, builder.mul(index, i64(stride)))
    return float_at(builder, pointer, builder.mul(index, stride))


def copy_values(lanes: Lanes, values: Sequence[ir.Value]) -> ir.Value:
    """Return the only operand: the combination that makes a copy."""
    del lanes
    return values[0]
