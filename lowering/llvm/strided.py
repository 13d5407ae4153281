"""Row-major work outside tiles: elementwise over any strides, which is also what transposes and concats are.

The innermost axis runs in vectors where the target has stride 1 there and each operand 1 or 0:

    stride 1   x = operand[i .. i + lanes)    one load
    stride 0   x = operand[0] in every lane   one load and a broadcast
    target[i .. i + lanes) = combine(x, ...)  one store

Other strides, and what is left behind the last whole vector, run value by value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from .builder import FLOAT_BYTES, Code, counted_loop, float_at, i64
from .vectors import Lanes

Combine = Callable[[Lanes, Sequence[ir.Value]], ir.Value]


@dataclass(frozen=True)
class Strided:
    """A buffer and its stride in values along each axis: an integer 0 or 1 where the code may rely on it."""

    pointer: ir.Value
    strides: tuple[ir.Value | int, ...]


def copy_values(lanes: Lanes, values: Sequence[ir.Value]) -> ir.Value:
    """Return the only operand: the combination that makes a copy."""
    del lanes
    return values[0]


@dataclass(frozen=True)
class StridedMap:
    """target[i] = combine(operands[i]) for every index i; all buffers have the same axes."""

    target: Strided
    operands: Sequence[Strided]
    combine: Combine = copy_values

    @property
    def buffers(self) -> list[Strided]:
        """The target, then the operands."""
        return [self.target, *self.operands]


def emit_strided(code: Code, builder: ir.IRBuilder, sizes: Sequence[ir.Value], work: StridedMap) -> None:
    """Emit `work` for all indices below `sizes`, one size an axis."""
    _emit_axis(code, builder, sizes, [buffer.pointer for buffer in work.buffers], work)


def emit_copy(code: Code, builder: ir.IRBuilder, source: ir.Value, target: ir.Value, size: ir.Value) -> None:
    """Emit a copy of `size` values that lie side by side."""
    emit_strided(code, builder, [size], StridedMap(Strided(target, (1,)), [Strided(source, (1,))]))


def _emit_axis(
    code: Code, builder: ir.IRBuilder, sizes: Sequence[ir.Value], pointers: Sequence[ir.Value], work: StridedMap
) -> None:
    """Emit the loops over the last axes, as many as there are sizes, from `pointers` on."""
    if len(sizes) == 1:
        _emit_line(code, builder, sizes[0], pointers, work)
        return
    axis = len(work.target.strides) - len(sizes)
    with counted_loop(builder, sizes[0]) as index:
        _emit_axis(code, builder, sizes[1:], _moved(builder, pointers, index, work, axis), work)


def _emit_line(
    code: Code, builder: ir.IRBuilder, size: ir.Value, pointers: Sequence[ir.Value], work: StridedMap
) -> None:
    """Emit the last axis."""
    strides = [buffer.strides[-1] for buffer in work.buffers]
    width = code.target.lanes if strides[0] == 1 and all(stride in (0, 1) for stride in strides) else 1
    whole = builder.sub(size, builder.srem(size, i64(width)))
    with counted_loop(builder, whole, width) as index:
        _emit_vector(code.lanes(builder, width), index, pointers, work)
    if width > 1:
        with counted_loop(builder, builder.sub(size, whole)) as rest:
            _emit_vector(code.lanes(builder, 1), builder.add(whole, rest), pointers, work)


def _emit_vector(lanes: Lanes, index: ir.Value, pointers: Sequence[ir.Value], work: StridedMap) -> None:
    """Emit one vector of results, from `index` on along the last axis."""
    builder = lanes.builder
    target, *sources = _moved(builder, pointers, index, work, -1)
    values = [
        lanes.splat(builder.load(source, typ=ir.FloatType()))
        if operand.strides[-1] == 0
        else lanes.load(source, FLOAT_BYTES)
        for source, operand in zip(sources, work.operands, strict=True)
    ]
    lanes.store(work.combine(lanes, values), target, FLOAT_BYTES)


def _moved(
    builder: ir.IRBuilder, pointers: Sequence[ir.Value], index: ir.Value, work: StridedMap, axis: int
) -> list[ir.Value]:
    """Return the address of each buffer at `index` of an axis."""
    moved: list[ir.Value] = []
    for pointer, buffer in zip(pointers, work.buffers, strict=True):
        stride = buffer.strides[axis]
        if stride == 0:
            moved.append(pointer)
        else:
            step = i64(stride) if isinstance(stride, int) else stride
            moved.append(float_at(builder, pointer, builder.mul(index, step)))
    return moved
