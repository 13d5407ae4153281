"""Memory plan of a tile: where its values lie in scratch memory; what is dead makes room, and values share buffers.

A concat of features is only placement: its operands are computed where they lie in the whole. So is a split. A layer
that reads each value before it writes there works in place when nobody reads its operand afterwards.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from xdsl.ir import SSAValue

from ...dialect.ops.axis_maps import axis_map_of
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.ops.network import NetworkOp
from ...dialect.ops.tile import TileOp
from ...dialect.tensors import shape_of
from ..buffer_packing import Lifetime, plan_offsets
from ..kernels.kernel_form import OUTPUT_PADDING
from ..llvm.call_tables import VECTOR_ROOM
from ..llvm.values import ALIGNMENT, FLOAT_BYTES
from ..neurons.connection_stream import working_rows
from .depth_first_groups import LayerGroup, groups_at

BEFORE, ARRIVAL = -2, -1
"""Steps before the first op: of nothing, and of the rows that come in."""


class Span(NamedTuple):
    """Bytes of scratch memory that a value may occupy, what is written behind it included."""

    start: int
    end: int


@dataclass(frozen=True)
class TileMemory:
    """The span of every value, and the bytes of all."""

    spans: dict[SSAValue, Span]
    total: int


def features_of(value: SSAValue) -> int:
    """Return the number of features of a value in a tile."""
    return shape_of(value)[-1]


def plan_tile(op: TileOp, width: int) -> TileMemory:
    """Return the place in scratch memory of every value of the body, for tiles of `width` columns."""
    buffers = _Buffers(op, width)
    buffers.place_parts()
    buffers.reuse_operands()
    roots = dict.fromkeys(buffers.placement(value).whole for value in buffers.first)
    used = [buffers.used[root] for root in roots]
    plan = plan_offsets(
        [Lifetime(buffers.buffer_bytes(root), use.first, use.last) for root, use in zip(roots, used, strict=True)]
    )
    starts = dict(zip(roots, plan.offsets, strict=True))
    spans: dict[SSAValue, Span] = {}
    for value in buffers.first:
        root, feature = buffers.placement(value)
        start = starts[root] + feature * width * FLOAT_BYTES
        spans[value] = Span(start, start + buffers.buffer_bytes(value))
    return TileMemory(spans, plan.total)


class _Placement(NamedTuple):
    """A value lies in the buffer of `whole`, maybe its own, from some feature of that on."""

    whole: SSAValue
    feature: int


class _Use(NamedTuple):
    """The steps in which the values of a buffer are computed, and the last one that reads any."""

    first: int
    newest: int
    last: int
    value_count: int

    def with_values_of(self, other: "_Use") -> "_Use":
        """Return the use of a buffer that holds the values of both."""
        return _Use(
            min(self.first, other.first),
            max(self.newest, other.newest),
            max(self.last, other.last),
            self.value_count + other.value_count,
        )


@dataclass
class _Buffers:
    """Values that share a buffer, under construction."""

    op: TileOp
    width: int
    placements: dict[SSAValue, _Placement] = field(default_factory=dict[SSAValue, _Placement])
    """Place of each value in another one, which may lie in a third: `placement` has the place in the buffer."""
    used: dict[SSAValue, _Use] = field(default_factory=dict[SSAValue, _Use])
    """The use of a buffer, by the value that is all of it."""
    first: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """The step that computes a value."""
    last: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """The last step that reads it."""

    def __post_init__(self) -> None:
        for argument in self.op.body.block.args:
            self.first[argument] = self.last[argument] = ARRIVAL
        for step, inner in enumerate(self.op.body.block.ops):
            for operand in inner.operands:
                if operand in self.last:
                    self.last[operand] = step
            for result in inner.results:
                self.first[result] = self.last[result] = step
        for group in {id(group): group for group in self.groups.values()}.values():
            # a group reads its operand until the end, and may write its result from the beginning on
            self.last[group.first.x] = self.last[group.layers[-1].x]
            self.first[group.last.result] = self.first[group.first.result]
        for value in self.first:
            self.placements[value] = _Placement(value, 0)
            self.used[value] = _Use(self.first[value], self.first[value], self.last[value], 1)

    def buffer_bytes(self, value: SSAValue) -> int:
        """Return the bytes that a value takes, with what is written or worked on behind it."""
        owner, extra = value.owner, 0
        if isinstance(owner, NetworkOp) and value is owner.outputs[0]:
            extra = working_rows(owner).total
        group = self.groups.get(owner)
        if group is not None and owner is group.last:
            extra = group.neuron_order.slot_count + 1
        return ((features_of(value) + OUTPUT_PADDING + extra) * self.width + VECTOR_ROOM) * FLOAT_BYTES

    @cached_property
    def groups(self) -> Mapping[object, LayerGroup]:
        """The groups of layers that run together, by layer."""
        return groups_at(self.op, self.width)

    def is_placed(self, value: SSAValue) -> bool:
        """Return whether a value lies in the buffer of another one."""
        return self.placements[value].whole is not value

    def placement(self, value: SSAValue) -> _Placement:
        """Return the place of a value in the buffer it lies in, which later calls find at once."""
        on_the_way = list[SSAValue]()
        while self.is_placed(value):
            on_the_way.append(value)
            value = self.placements[value].whole
        found = _Placement(value, 0)
        for one in reversed(on_the_way):
            found = _Placement(value, found.feature + self.placements[one].feature)
            self.placements[one] = found
        return found

    def place(self, value: SSAValue, whole: SSAValue, feature: int) -> None:
        """Let a value that has its own buffer lie in `whole`, with all that lies in it."""
        root, start = self.placement(whole)
        self.placements[value] = _Placement(root, start + feature)
        self.used[root] = self.used[root].with_values_of(self.used.pop(value))

    def place_parts(self) -> None:
        """Let parts of concats and splits lie in the whole."""
        for inner in self.op.body.block.ops:
            if isinstance(inner, ConcatOp):
                self._place_operands(inner)
        for inner in self.op.body.block.ops:
            if isinstance(inner, SplitOp):
                for part, feature in self._aligned_parts(inner.parts):
                    if not self.is_placed(part):
                        self.place(part, inner.x, feature)

    def _place_operands(self, op: ConcatOp) -> None:
        """Place operands of a concat that are computed one after the other: each may write over what comes behind."""
        latest, counts = BEFORE, Counter(op.parts)
        for part, feature in self._aligned_parts(op.parts):
            if part not in self.first or self.is_placed(part) or isinstance(part.owner, NetworkOp | SplitOp):
                continue
            use = self.used[part]
            # rows that come in are written exactly, so those of several operands may lie side by side
            in_order = use.first > latest or latest == use.newest == ARRIVAL
            if in_order and counts[part] == 1:
                self.place(part, op.result, feature)
                latest = use.newest

    def _aligned_parts(self, parts: Sequence[SSAValue]) -> Iterator[tuple[SSAValue, int]]:
        """Yield the parts before whose end nothing is written by whole vectors, each with its first feature."""
        feature = 0
        for part in parts:
            yield part, feature
            if features_of(part) * self.width * FLOAT_BYTES % ALIGNMENT:
                return
            feature += features_of(part)

    def reuse_operands(self) -> None:
        """Let ops work in place that keep features.

        They read a value for the last time before they write the result of the same feature and column.
        """
        unshared = {value for value, use in self.used.items() if use.value_count == 1}
        for step, inner in enumerate(self.op.body.block.ops):
            axis_map = axis_map_of(inner)
            if axis_map is None or not axis_map.keeps_features or inner.results[0] not in unshared:
                continue
            for operand in inner.operands:
                same = operand in unshared and features_of(operand) == features_of(inner.results[0])
                if same and self.last[operand] == step:
                    self.place(inner.results[0], operand, 0)
                    break
