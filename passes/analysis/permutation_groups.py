"""Axes of values and constants that have to be permuted together, so that the function stays what it is.

Neurons have no order of their own: when the columns of a weight, its bias, and the rows of every weight that reads it
are permuted alike, nothing changes but their positions. A group is a set of axes, or of parts of axes where concat and
split join and cut them, that ops tie to each other. A group that an input, an output or an op of unknown meaning relies
on is pinned: it keeps its order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.axis_maps import axis_map_of
from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.tensors import DYNAMIC, shape_of


class Member:
    """A run of neurons that the ops seen so far do not cut; compared by identity."""

    def __init__(self, size: int, *, pinned: bool) -> None:
        self.size = size
        self.pinned = pinned
        self.instead: list[Member] | None = None
        """The runs that stand for it since it was tied to another run, or cut."""

    def stands_for(self, runs: list["Member"]) -> None:
        """Let `runs`, of the same size together, stand for this run."""
        for run in runs:
            run.pinned |= self.pinned
        self.instead = runs


class Run(NamedTuple):
    """A run of neurons: an axis of a value, and the first index there."""

    value: SSAValue
    axis: int
    start: int


@dataclass(frozen=True)
class PermutationGroup:
    """Runs of `size` neurons that are permuted together; pinned ones keep their order."""

    size: int
    pinned: bool
    runs: tuple[Run, ...]


class Axis(NamedTuple):
    """An axis of a value."""

    value: SSAValue
    axis: int

    @property
    def size(self) -> int:
        """The size of the axis."""
        return shape_of(self.value)[self.axis]


MOST_RUNS: Final = 256
"""Runs along an axis: one that is joined of more keeps its order, as joins of joins double them each time."""


@dataclass(frozen=True)
class _Axes:
    """The runs along the axes of every value, under construction; an axis of size 1 or of unknown size has none."""

    runs: dict[SSAValue, list[list[Member]]] = field(default_factory=dict[SSAValue, list[list[Member]]])

    def of(self, where: Axis) -> list[Member]:
        """Return the runs along an axis as they are cut now."""
        value, axis = where
        if value not in self.runs:
            sizes = shape_of(value)
            self.runs[value] = [[Member(size, pinned=False)] if size > 1 else [] for size in sizes]
        current = [run for member in self.runs[value][axis] for run in _current(member)]
        self.runs[value][axis] = current
        return current

    def tie(self, first: Axis, second: Axis) -> None:
        """Let two axes of the same known size be permuted together; an axis that is broadcast is left alone."""
        sizes = (first.size, second.size)
        if DYNAMIC in sizes:
            self.pin(first)
            self.pin(second)
        elif 1 not in sizes:
            _tie_runs(self.of(first), self.of(second))

    def pin(self, axis: Axis) -> None:
        """Let an axis keep its order."""
        for run in self.of(axis):
            run.pinned = True

    def pin_all(self, values: Iterable[SSAValue]) -> None:
        """Let every axis of tensors among `values` keep its order."""
        for value in values:
            if isinstance(value.type, TensorType):
                for axis in range(len(shape_of(value))):
                    self.pin(Axis(value, axis))


def _current(run: Member) -> Iterator[Member]:
    pending = [run]
    while pending:
        one = pending.pop()
        if one.instead is None:
            yield one
        else:
            pending += reversed(one.instead)


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
    """Return the groups of the function of `module`, which has no tiles yet, in the order of their first axes."""
    func = next((op for op in module.body.block.ops if isinstance(op, FuncOp)), None)
    if func is None:
        return ()
    axes = _Axes()
    axes.pin_all(func.args)
    for op in func.body.block.ops:
        _tie(op, axes)
    runs: dict[Member, list[Run]] = {}
    for value in list(axes.runs):
        for axis in range(len(shape_of(value))):
            start = 0
            for run in axes.of(Axis(value, axis)):
                runs.setdefault(run, []).append(Run(value, axis, start))
                start += run.size
    return tuple(PermutationGroup(run.size, run.pinned, tuple(found)) for run, found in runs.items())


def _tie(op: Operation, axes: _Axes) -> None:
    """Tie the axes of operands and results that `op` reads and writes index by index."""
    axis_map = axis_map_of(op)
    if axis_map is None:
        if not isinstance(op, ConstantOp | SparseConstantOp):
            axes.pin_all([*op.operands, *op.results])
        return
    axes_of: dict[str, list[Axis]] = {}
    names = (*axis_map.results, *axis_map.operands)
    for value, own in zip((*op.results, *op.operands), names, strict=True):
        for axis, name in enumerate(own):
            axes_of.setdefault(name, []).append(Axis(value, axis))
    for name, (first, *others) in axes_of.items():
        if name in axis_map.fixed:
            for axis in (first, *others):
                axes.pin(axis)
        for other in others:
            axes.tie(other, first)
    if axis_map.join is not None:
        (whole,) = axes_of[axis_map.join.whole]
        _tie_joined(whole, [axis for part in axis_map.join.parts for axis in axes_of[part]], axes)


def _tie_joined(whole: Axis, parts: Sequence[Axis], axes: _Axes) -> None:
    """Tie an axis to those that follow each other along it."""
    sizes = [part.size for part in parts]
    if DYNAMIC in (whole.size, *sizes) or sum(len(axes.of(part)) for part in parts) > MOST_RUNS:
        for axis in (whole, *parts):
            axes.pin(axis)
    elif sum(sizes) > 1:
        # a part of size 1 has no run of its own: it takes a pinned one in the whole
        runs = [run for part in parts for run in (axes.of(part) if part.size != 1 else [Member(1, pinned=True)])]
        _tie_runs(runs, axes.of(whole))
