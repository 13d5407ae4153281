"""Which axes of values and constants have to be permuted together, so that the function stays what it is.

Neurons have no order of their own: when the columns of a weight, its bias, and the rows of every weight that reads it
are permuted alike, nothing changes but the places. A group is a set of axes, or of parts of axes where concat and split
join and cut them, that ops tie to each other. A group that an input, an output or an op of unknown meaning relies on is
pinned: it keeps its order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.hints import isa

from redpebble.dialect.ops.axis_maps import axis_map_of
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
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


class Place(NamedTuple):
    """An axis of a value."""

    value: SSAValue
    axis: int

    @property
    def size(self) -> int:
        """The size of the axis."""
        return shape_of(self.value)[self.axis]


@dataclass(frozen=True)
class _Axes:
    """The runs along the axes of every value, under construction; an axis of size 1 or of unknown size has none."""

    runs: dict[SSAValue, list[list[Member]]] = field(default_factory=dict[SSAValue, list[list[Member]]])

    def of(self, place: Place) -> list[Member]:
        """Return the runs along an axis as they are cut now."""
        value, axis = place
        if value not in self.runs:
            sizes = shape_of(value)
            self.runs[value] = [[Member(size, pinned=False)] if size > 1 else [] for size in sizes]
        current = [run for member in self.runs[value][axis] for run in _current(member)]
        self.runs[value][axis] = current
        return current

    def tie(self, first: Place, second: Place) -> None:
        """Let two axes of the same known size be permuted together; an axis that is broadcast is left alone."""
        sizes = (first.size, second.size)
        if DYNAMIC in sizes:
            self.pin(first)
            self.pin(second)
        elif 1 not in sizes:
            _tie_runs(self.of(first), self.of(second))

    def pin(self, place: Place) -> None:
        """Let an axis keep its order."""
        for run in self.of(place):
            run.pinned = True

    def pin_all(self, values: Iterable[SSAValue]) -> None:
        """Let every axis of tensors among `values` keep its order."""
        for value in values:
            if isa(value.type, F32Tensor):
                for axis in range(len(shape_of(value))):
                    self.pin(Place(value, axis))


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
            for run in axes.of(Place(value, axis)):
                places.setdefault(run, []).append((value, axis, start))
                start += run.size
    return tuple(PermutationGroup(run.size, run.pinned, tuple(where)) for run, where in places.items())


def _tie(op: Operation, axes: _Axes) -> None:
    """Tie the axes of operands and results that `op` reads and writes index by index."""
    axis_map = axis_map_of(op)
    if axis_map is None:
        if not isinstance(op, ConstantOp | SparseConstantOp):
            axes.pin_all([*op.operands, *op.results])
        return
    places: dict[str, list[Place]] = {}
    names = (*axis_map.results, *axis_map.operands)
    for value, own in zip((*op.results, *op.operands), names, strict=True):
        for axis, name in enumerate(own):
            places.setdefault(name, []).append(Place(value, axis))
    for name, (first, *others) in places.items():
        if name in axis_map.fixed:
            for place in (first, *others):
                axes.pin(place)
        for other in others:
            axes.tie(other, first)
    if axis_map.join is not None:
        (whole,) = places[axis_map.join.whole]
        _tie_joined(whole, [place for part in axis_map.join.parts for place in places[part]], axes)


def _tie_joined(whole: Place, parts: Sequence[Place], axes: _Axes) -> None:
    """Tie an axis to those that follow each other along it."""
    sizes = [part.size for part in parts]
    if DYNAMIC in (whole.size, *sizes):
        for place in (whole, *parts):
            axes.pin(place)
    elif sum(sizes) > 1:
        # a part of size 1 has no run of its own: it takes a pinned one in the whole
        runs = [run for part in parts for run in (axes.of(part) if part.size != 1 else [Member(1, pinned=True)])]
        _tie_runs(runs, axes.of(whole))
