"""Reshape as the operator that needs least: Flatten, Unsqueeze, Squeeze, Reshape, or a shape computed at run time."""

from collections.abc import Sequence

import onnx_ir as ir

from redpebble.dialect.ops.movement import INFERRED, ReshapeOp, copied
from redpebble.dialect.tensors import DYNAMIC, Shape, shape_of
from redpebble.export.writing.node_builder import Draft

AXES_AS_INPUT = 13
ALLOW_ZERO = 14


def emit_reshape(op: ReshapeOp, draft: Draft) -> tuple[ir.Value]:
    """The first form that says what `op` does, for an empty batch, too (it leaves no size to be what is left over)."""
    shape, x = shape_of(op.x), draft.operand(op.x)
    target = _settled(op)
    if len(shape) > 1 and len(target) == 2 and target[0] == _copies(shape)[0] != 0:
        return (draft.node("Flatten", x),)
    inserted = _missing_axes(target, _copies(shape))
    if inserted is not None:
        return (_with_axes("Unsqueeze", x, inserted, draft),)
    removed = _missing_axes(_copies(shape), target)
    if removed is not None:
        return (_with_axes("Squeeze", x, removed, draft),)
    entries = _constant_entries(target)
    if entries is not None:
        return (draft.node("Reshape", x, draft.integers(entries), **_zeros(target, draft)),)
    return (draft.node("Reshape", x, _computed_target(x, target, draft), **_zeros(target, draft, computed=True)),)


def _copies(shape: Shape) -> tuple[int, ...]:
    """Return the target that changes nothing: known sizes, and copies of the others."""
    return tuple(copied(axis) if size == DYNAMIC else size for axis, size in enumerate(shape))


def _settled(op: ReshapeOp) -> tuple[int, ...]:
    """Return the target with every size that is known, by the types, in place of copies and what is left over."""
    shape, result = shape_of(op.x), shape_of(op.result)
    entries: list[int] = []
    for entry, size in zip(op.target.values, result, strict=True):
        source = shape[-2 - entry] if entry < INFERRED else size
        entries.append(entry if source == DYNAMIC else source)
    return tuple(entries)


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


def _with_axes(operator: str, x: ir.Value, axes: list[int], draft: Draft) -> ir.Value:
    if draft.opset >= AXES_AS_INPUT:
        return draft.node(operator, x, draft.integers(axes))
    return draft.node(operator, x, axes=axes)


def _constant_entries(target: tuple[int, ...]) -> list[int] | None:
    """Return the target in ONNX's words (0 copies the same axis, -1 is left over), or None when it has no words."""
    entries: list[int] = []
    for axis, entry in enumerate(target):
        elsewhere = entry < INFERRED and entry != copied(axis)
        entries.append(0 if entry == copied(axis) else INFERRED if elsewhere else entry)
    literal_zero = 0 in target
    if entries.count(INFERRED) > 1 or (literal_zero and any(entry < INFERRED for entry in target)):
        return None
    return entries


def _zeros(target: tuple[int, ...], draft: Draft, *, computed: bool = False) -> dict[str, int]:
    """Return the attribute that makes a 0 mean 0, where a size is 0 or may turn out to be."""
    if 0 in target and draft.opset < ALLOW_ZERO:
        raise ValueError(f"a reshape to a size of 0 needs opset {ALLOW_ZERO}, the model's is {draft.opset}")
    wanted = draft.opset >= ALLOW_ZERO and (computed or 0 in target) and INFERRED not in target
    return {"allowzero": 1} if wanted else {}


def _computed_target(x: ir.Value, target: tuple[int, ...], draft: Draft) -> ir.Value:
    """Return the target put together at run time from the sizes of `x`."""
    sizes = draft.node("Shape", x)
    parts = [
        draft.node("Gather", sizes, draft.integers([-2 - entry])) if entry < INFERRED else draft.integers([entry])
        for entry in target
    ]
    return draft.node("Concat", *parts, axis=0)
