"""Ops that move values: transpose, concat, split, take and reshape; products of what was computed."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import Final

import onnx_ir as ir
from xdsl.ir import Operation

from ...dialect.ops.layers import BatchMatmulTransposeBOp
from ...dialect.ops.movement import INFERRED, ConcatOp, ReshapeOp, SplitOp, TakeOp, TransposeOp, copied
from ...dialect.tensors import DYNAMIC, Shape, shape_of
from ..writing.node_builder import Emitter, NodeBuilder

SPLIT_SIZES_AS_INPUT = 13
SLICE_BOUNDS_AS_INPUT = 10
SPLIT_COUNT = 18
"""The opset from which equal parts are asked for by their number."""


def emit_transpose(op: TransposeOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Transpose with its permutation."""
    return (builder.node("Transpose", builder.operand(op.x), perm=op.order),)


def emit_concat(op: ConcatOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Concat along the axis."""
    return (builder.node("Concat", *(builder.operand(part) for part in op.parts), axis=op.axis.value.data),)


def emit_split(op: SplitOp, builder: NodeBuilder) -> tuple[ir.Value, ...]:
    """Split; equal parts need no sizes. Slice where one part alone is read: the others would be copied for nothing."""
    axis, count = op.axis.value.data, len(op.parts)
    sizes = [shape_of(part)[axis] for part in op.parts]
    x = builder.operand(op.x)
    read = [index for index, part in enumerate(op.parts) if part.uses.get_length()]
    if len(read) == 1 < count:
        # the others have no name in ONNX, and no reader who would ask for it
        part = _slice(x, axis, sum(sizes[: read[0]]), sizes[read[0]], builder)
        return tuple(part if index == read[0] else ir.Value() for index in range(count))
    # onnxruntime does not cut nothing into a number of parts, but into given sizes
    if len(set(sizes)) == 1 and sizes[0] > 0:
        number = {"num_outputs": count} if builder.opset >= SPLIT_COUNT else {}
        return tuple(builder.parts("Split", [x], count, axis=axis, **number))
    if builder.opset >= SPLIT_SIZES_AS_INPUT:
        return tuple(builder.parts("Split", [x, builder.integers(sizes)], count, axis=axis))
    return tuple(builder.parts("Split", [x], count, axis=axis, split=sizes))


def emit_take(op: TakeOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Gather with one number, whose axis is gone."""
    place = builder.integer(op.place.value.data)
    return (builder.node("Gather", builder.operand(op.x), place, axis=op.axis.value.data),)


def emit_product(op: BatchMatmulTransposeBOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """MatMul behind a Transpose."""
    rank = len(shape_of(op.y))
    swapped = builder.node("Transpose", builder.operand(op.y), perm=(*range(rank - 2), rank - 1, rank - 2))
    return (builder.node("MatMul", builder.operand(op.x), swapped),)


def _slice(x: ir.Value, axis: int, start: int, size: int, builder: NodeBuilder) -> ir.Value:
    if builder.opset >= SLICE_BOUNDS_AS_INPUT:
        bounds = ([start], [start + size], [axis])
        return builder.node("Slice", x, *(builder.integers(numbers) for numbers in bounds))
    return builder.node("Slice", x, axes=[axis], starts=[start], ends=[start + size])


AXES_AS_INPUT = 13
ALLOW_ZERO = 14


def emit_reshape(op: ReshapeOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """The first form that says what `op` does, for an empty batch, too (it leaves no size to be what is left over)."""
    shape, x = shape_of(op.x), builder.operand(op.x)
    target = _settled(op)
    if len(shape) > 1 and len(target) == 2 and target[0] == _copies(shape)[0] != 0:
        return (builder.node("Flatten", x),)
    inserted = _missing_axes(target, _copies(shape))
    if inserted is not None:
        return (_with_axes("Unsqueeze", x, inserted, builder),)
    removed = _missing_axes(_copies(shape), target)
    if removed is not None:
        return (_with_axes("Squeeze", x, removed, builder),)
    entries = _constant_entries(shape, target)
    if entries is not None:
        return (builder.node("Reshape", x, builder.integers(entries), **_zeros(target, builder)),)
    axis = _flattened_axis(shape, target)
    if axis is not None:
        # a target that is computed has no word for what is left over beside a size that turns out to be 0
        return (builder.node("Flatten", x, axis=axis),)
    computed = _computed_target(op, target, builder)
    return (builder.node("Reshape", x, computed, **_zeros(target, builder, computed=True)),)


def _copies(shape: Shape) -> tuple[int, ...]:
    """Return the target that changes nothing: known sizes, and copies of the others."""
    return tuple(copied(axis) if size == DYNAMIC else size for axis, size in enumerate(shape))


def _settled(op: ReshapeOp) -> tuple[int, ...]:
    """Return the target with every size that is known, by the types, in place of copies and what is left over."""
    shape, result = shape_of(op.x), shape_of(op.result)
    entries: list[int] = []
    for entry, size in zip(op.target.entries, result, strict=True):
        source = shape[-2 - entry] if entry < INFERRED else size
        entries.append(entry if source == DYNAMIC else source)
    return tuple(entries)


def _flattened_axis(shape: Shape, target: tuple[int, ...]) -> int | None:
    """Return where Flatten cuts the axes so that one that is copied stays alone, or None."""
    if len(target) != 2:
        return None
    copies = _copies(shape)
    for axis in range(1, len(shape)):
        sides = zip(target, (copies[:axis], copies[axis:]), strict=True)
        if any(entry < INFERRED and [one for one in side if one != 1] == [entry] for entry, side in sides):
            return axis
    return None


def _missing_axes(longer: Sequence[int], shorter: Sequence[int]) -> list[int] | None:
    """Return the axes of size 1 that `longer` has more than `shorter`, or None when they differ otherwise."""
    axes: list[int] = []
    position = 0
    for axis, entry in enumerate(longer):
        if position < len(shorter) and shorter[position] == entry:
            position += 1
        elif entry == 1:
            axes.append(axis)
        else:
            return None
    return axes if axes and position == len(shorter) else None


def _with_axes(operator: str, x: ir.Value, axes: list[int], builder: NodeBuilder) -> ir.Value:
    if builder.opset >= AXES_AS_INPUT:
        return builder.node(operator, x, builder.integers(axes))
    return builder.node(operator, x, axes=axes)


def _constant_entries(shape: Shape, target: tuple[int, ...]) -> list[int] | None:
    """Return the target in ONNX's words (0 copies the same axis, -1 is left over), or None when it has no words.

    What is copied from another axis is left over, but not beside another copy: nothing is left over where that is 0.
    """
    entries: list[int] = []
    for axis, entry in enumerate(target):
        elsewhere = entry < INFERRED and entry != copied(axis)
        entries.append(0 if entry == copied(axis) else INFERRED if elsewhere else entry)
    literal_zero, copies, left_over = 0 in target, any(entry == 0 for entry in entries), entries.count(INFERRED)
    if left_over > 1 or (literal_zero and any(entry < INFERRED for entry in target)):
        return None
    is_open = INFERRED in target and _ratio(shape, target) is None
    return entries if not (copies and left_over) or is_open else None


def _ratio(shape: Shape, target: tuple[int, ...]) -> Fraction | None:
    """Return the inferred size (-1) over the product of the axes that are not copied, None where a size is 0."""
    numbers, others = (prod(size for size in sizes if size >= 0) for sizes in (shape, target))
    return Fraction(numbers, others) if numbers and others else None


def _zeros(target: tuple[int, ...], builder: NodeBuilder, *, computed: bool = False) -> dict[str, int]:
    """Return the attribute that makes a 0 mean 0, where a size is 0 or may turn out to be."""
    if 0 in target and builder.opset < ALLOW_ZERO:
        raise ValueError(f"a reshape to a size of 0 needs opset {ALLOW_ZERO}, the model's is {builder.opset}")
    wanted = builder.opset >= ALLOW_ZERO and (computed or 0 in target)
    return {"allowzero": 1} if wanted else {}


def _computed_target(op: ReshapeOp, target: tuple[int, ...], builder: NodeBuilder) -> ir.Value:
    """Return the target put together at run time from the sizes of what is reshaped."""
    sizes = builder.node("Shape", builder.operand(op.x))
    parts: list[ir.Value] = []
    for entry in target:
        if entry == INFERRED:
            parts.append(_left_over(shape_of(op.x), target, sizes, builder))
        elif entry < INFERRED:
            parts.append(builder.node("Gather", sizes, builder.integers([-2 - entry])))
        else:
            parts.append(builder.integers([entry]))
    return builder.node("Concat", *parts, axis=0)


def _left_over(shape: Shape, target: tuple[int, ...], sizes: ir.Value, builder: NodeBuilder) -> ir.Value:
    """Return the size of what is left over, from the sizes of the axes that are not copied."""
    ratio = _ratio(shape, target)
    if ratio is None:
        return builder.integers([0])
    merged = [axis for axis, size in enumerate(shape) if size == DYNAMIC and copied(axis) not in target]
    size = builder.node("Gather", sizes, builder.integers(merged))
    if len(merged) != 1:
        size = builder.node("ReduceProd", size)
    for operator, number in (("Mul", ratio.numerator), ("Div", ratio.denominator)):
        size = size if number == 1 else builder.node(operator, size, builder.integers([number]))
    return size


MOVEMENT_EMITTERS: Final[Mapping[type[Operation], Emitter]] = MappingProxyType(
    {
        ReshapeOp: emit_reshape,
        TransposeOp: emit_transpose,
        ConcatOp: emit_concat,
        SplitOp: emit_split,
        TakeOp: emit_take,
        BatchMatmulTransposeBOp: emit_product,
    }
)
