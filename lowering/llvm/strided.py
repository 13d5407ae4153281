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

from .builder import Code
from .flow import loop
from .values import Floats, Index, Number
from .vectors import Lanes

Combine = Callable[[Lanes, Sequence[ir.Value]], ir.Value]


@dataclass(frozen=True)
class Strided:
    """A buffer and its stride in values along each axis: an integer 0 or 1 where the code may rely on it."""

    pointer: Floats
    strides: tuple[Index, ...]

    def moved(self, index: Number, axis: int, pointer: Floats) -> Floats:
        """Return the address `index` steps along an axis after one of the buffer."""
        stride = self.strides[axis]
        return pointer if isinstance(stride, int) and stride == 0 else pointer.at(index * stride)


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


def emit_strided(code: Code, sizes: Sequence[Number], work: StridedMap) -> None:
    """Emit `work` for all indices below `sizes`, one size an axis."""
    _emit_axis(code, sizes, [buffer.pointer for buffer in work.buffers], work)


def emit_copy(code: Code, source: Floats, target: Floats, size: Number) -> None:
    """Emit a copy of `size` values that lie side by side."""
    emit_strided(code, [size], StridedMap(Strided(target, (1,)), [Strided(source, (1,))]))


def _emit_axis(code: Code, sizes: Sequence[Number], pointers: Sequence[Floats], work: StridedMap) -> None:
    """Emit the loops over the last axes, as many as there are sizes, from `pointers` on."""
    if len(sizes) == 1:
        _emit_line(code, sizes[0], pointers, work)
        return
    axis = len(work.target.strides) - len(sizes)
    with loop(sizes[0]) as index:
        _emit_axis(code, sizes[1:], _moved(pointers, index, work, axis), work)


def _emit_line(code: Code, size: Number, pointers: Sequence[Floats], work: StridedMap) -> None:
    """Emit the last axis: whole vectors where strides permit, then single values."""
    target, *others = [buffer.strides[-1] for buffer in work.buffers]
    side_by_side = isinstance(target, int) and target == 1
    vectors = side_by_side and all(isinstance(stride, int) and stride in (0, 1) for stride in others)
    width = code.target.lanes if vectors else 1
    whole = size - size.remainder(width)
    with loop(whole, width) as index:
        _emit_vector(code.lanes(size, width), index, pointers, work)
    if width > 1:
        with loop(size - whole) as rest:
            _emit_vector(code.lanes(size, 1), whole + rest, pointers, work)


def _emit_vector(lanes: Lanes, index: Number, pointers: Sequence[Floats], work: StridedMap) -> None:
    """Emit one vector of results, from `index` on along the last axis."""
    target, *sources = _moved(pointers, index, work, -1)
    values = [
        lanes.splat(source[0]) if isinstance(stride := operand.strides[-1], int) and stride == 0 else lanes.load(source)
        for source, operand in zip(sources, work.operands, strict=True)
    ]
    lanes.store(work.combine(lanes, values), target)


def _moved(pointers: Sequence[Floats], index: Number, work: StridedMap, axis: int) -> list[Floats]:
    """Return the address of each buffer at `index` of an axis."""
    return [buffer.moved(index, axis, pointer) for pointer, buffer in zip(pointers, work.buffers, strict=True)]
