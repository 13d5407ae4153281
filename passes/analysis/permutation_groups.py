"""Which axes of values and constants have to be permuted together, so that the function stays what it is.

Neurons have no order of their own: when the columns of a weight, its bias, and the rows of every weight that reads it
are permuted alike, nothing changes but the places. A group is a set of axes, or of parts of axes where concat and split
join and cut them, that ops tie to each other. A group that an input, an output or an op of unknown meaning relies on is
pinned: it keeps its order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.hints import isa

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, BinaryOp
from redpebble.dialect.ops.layers import (
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from redpebble.dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TransposeOp, copied
from redpebble.dialect.tensors import DYNAMIC, F32Tensor, shape_of


class Member:
    """A run of neurons that the ops seen so far do not cut; compared by identity."""

    def __init__(self, size: int, *, pinned: bool) -> None:
        self.size = size
        self.pinned = pinned
        self.instead: list[Member] | None = None
        """What stands for it since it was tied to another run, or cut."""

    def stands_for(self, runs: list["Member"]) -> None:
        """Let `runs`, of the same size together, take this run's place."""
        for run in runs:
            run.pinned |= self.pinned
        self.instead = runs


@dataclass(frozen=True)
class PermutationGroup:
    """Runs of `size` neurons that are permuted together; pinned ones keep their order."""

    size: int
    pinned: bool
    places: tuple[tuple[SSAValue, int, int], ...]
    """Where the runs are: value, axis, and the index on the axis where the run starts."""


@dataclass(frozen=True)
class _Axes:
    """The runs along the axes of every value, under construction; an axis of size 1 or of unknown size has none."""

    runs: dict[SSAValue, list[list[Member]]] = field(default_factory=dict[SSAValue, list[list[Member]]])

    def of(self, value: SSAValue, axis: int) -> list[Member]:
        """Return the runs along an axis as they are cut now."""
        if value not in self.runs:
            sizes = shape_of(value)
            self.runs[value] = [[Member(size, pinned=False)] if size > 1 else [] for size in sizes]
        current = [run for member in self.runs[value][axis] for run in _current(member)]
        self.runs[value][axis] = current
        return current

    def tie(self, first: tuple[SSAValue, int], second: tuple[SSAValue, int]) -> None:
        """Let two axes of the same known size be permuted together; an axis that is broadcast is left alone."""
        sizes = [shape_of(value)[axis] for value, axis in (first, second)]
        if DYNAMIC in sizes:
            self.pin(*first)
            self.pin(*second)
        elif 1 not in sizes:
            _tie_runs(self.of(*first), self.of(*second))

    def pin(self, value: SSAValue, axis: int) -> None:
        """Let an axis keep its order."""
        for run in self.of(value, axis):
            run.pinned = True

    def pin_all(self, values: Iterable[SSAValue]) -> None:
        """Let every axis of tensors among `values` keep its order."""
        for value in values:
            if isa(value.type, F32Tensor):
                for axis in range(len(shape_of(value))):
                    self.pin(value, axis)


def _current(run: Member) -> Iterator[Member]:
    if run.instead is None:
        yield run
        return
    for other in run.instead:
        yield from _current(other)


def _tie_runs(first: Sequence[Member], second: Sequence[Member]) -> None:
    """Tie two sequences of runs of the same total size, cutting runs where the other sequence has an end."""
    left, right = list(reversed(first)), list(reversed(second))
    while left and right:
        # tying the runs before may have replaced these
        left[-1:] = reversed([*_current(left[-1])])
        right[-1:] = reversed([*_current(right[-1])])
        one, other = left[-1], right[-1]
        if one.size == other.size:
            if one is not other:
                other.stands_for([one])
            left.pop()
            right.pop()
            continue
        longer, length = (one, other.size) if one.size > other.size else (other, one.size)
        longer.stands_for([Member(length, pinned=False), Member(longer.size - length, pinned=False)])


def permutation_groups(module: ModuleOp) -> tuple[PermutationGroup, ...]:
    """Return the groups of the function of `module`, which has no tiles yet, in the order of their first places."""
    func = next(op for op in module.body.block.ops if isinstance(op, FuncOp))
    axes = _Axes()
    axes.pin_all(func.args)
    for op in func.body.block.ops:
        _tie(op, axes)
    places: dict[Member, list[tuple[SSAValue, int, int]]] = {}
    for value in list(axes.runs):
        for axis in range(len(shape_of(value))):
            start = 0
            for run in axes.of(value, axis):
                places.setdefault(run, []).append((value, axis, start))
                start += run.size
    return tuple(PermutationGroup(run.size, run.pinned, tuple(where)) for run, where in places.items())


def _tie(op: Operation, axes: _Axes) -> None:
    """Tie the axes of operands and results that `op` reads and writes index by index."""
    match op:
        case ConstantOp() | SparseConstantOp():
            pass
        case LinearOp():
            _tie_linear(op, axes)
        case BinaryOp():
            _tie_aligned(op.left, op.result, axes)
            _tie_aligned(op.right, op.result, axes)
        case ActivateOp() | SoftmaxOp() | LogSoftmaxOp():
            _tie_aligned(op.x, op.result, axes)
        case LayerNormOp() | RmsNormOp():
            _tie_aligned(op.x, op.result, axes)
            for parameter in op.operands[1:]:
                axes.tie((parameter, 0), (op.x, len(shape_of(op.x)) - 1))
        case BatchNormOp():
            _tie_aligned(op.x, op.result, axes)
            for parameter in op.operands[1:]:
                axes.tie((parameter, 0), (op.x, 1))
        case ReduceMeanOp():
            # a mean is the same in any order: its last axis is tied to nothing
            for axis in range(len(shape_of(op.x)) - 1):
                axes.tie((op.x, axis), (op.result, axis))
        case TransposeOp():
            for axis, source in enumerate(op.order):
                axes.tie((op.x, source), (op.result, axis))
        case ConcatOp():
            _tie_joined(op.result, op.parts, op.axis.value.data, axes)
        case SplitOp():
            _tie_joined(op.x, op.parts, op.axis.value.data, axes)
        case ReshapeOp():
            _tie_reshape(op, axes)
        case _:
            axes.pin_all([*op.operands, *op.results])


def _tie_linear(op: LinearOp, axes: _Axes) -> None:
    last = len(shape_of(op.x)) - 1
    for axis in range(last):
        axes.tie((op.x, axis), (op.result, axis))
    axes.tie((op.x, last), (op.weight, 0))
    axes.tie((op.weight, 1), (op.result, last))
    if op.bias is not None:
        axes.tie((op.bias, 0), (op.result, last))


def _tie_aligned(operand: SSAValue, result: SSAValue, axes: _Axes) -> None:
    """Tie the axes of an operand to those of a result that it is broadcast to."""
    missing = len(shape_of(result)) - len(shape_of(operand))
    for axis in range(len(shape_of(operand))):
        axes.tie((operand, axis), (result, axis + missing))


def _tie_joined(whole: SSAValue, parts: Sequence[SSAValue], along: int, axes: _Axes) -> None:
    """Tie a value to the parts that follow each other along one of its axes."""
    for axis in range(len(shape_of(whole))):
        if axis != along:
            for part in parts:
                axes.tie((part, axis), (whole, axis))
    sizes = [shape_of(part)[along] for part in parts]
    if DYNAMIC in sizes or shape_of(whole)[along] == DYNAMIC:
        for value in (whole, *parts):
            axes.pin(value, along)
    elif sum(sizes) > 1:
        _tie_runs(_runs_of_parts(parts, along, axes), axes.of(whole, along))


def _runs_of_parts(parts: Sequence[SSAValue], along: int, axes: _Axes) -> list[Member]:
    """Return the runs of all parts; one of size 1, which has none of its own, takes a pinned run in the whole."""
    runs: list[Member] = []
    for part in parts:
        runs += axes.of(part, along) if shape_of(part)[along] != 1 else [Member(1, pinned=True)]
    return runs


def _tie_reshape(op: ReshapeOp, axes: _Axes) -> None:
    """Tie the last axes as long as they are the same on both sides; what is merged or cut before them is pinned."""
    source, target = shape_of(op.x), shape_of(op.result)
    left = [axis for axis, size in enumerate(source) if size != 1]
    right = [axis for axis, size in enumerate(target) if size != 1]
    while left and right:
        same = source[left[-1]] == target[right[-1]] != DYNAMIC
        if not same and op.target.values[right[-1]] != copied(left[-1]):
            break
        axes.tie((op.x, left.pop()), (op.result, right.pop()))
    for value, rest in ((op.x, left), (op.result, right)):
        for axis in rest:
            axes.pin(value, axis)
