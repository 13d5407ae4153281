"""Memory plan of a tile: where its values lie in scratch memory; what is dead makes room, and values share buffers.

A concat of features is only placement: its operands are computed where they lie in the whole. So is a split. A layer
that reads each value before it writes there works in place when nobody reads its operand afterwards.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from xdsl.ir import SSAValue

from redpebble.dialect.ops.axis_maps import axis_map_of
from redpebble.dialect.ops.movement import ConcatOp, SplitOp
from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.tensors import shape_of
from redpebble.lowering.buffer_packing import Lifetime, plan_offsets
from redpebble.lowering.kernels.kernel_form import OUTPUT_PADDING
from redpebble.lowering.llvm.builder import ALIGNMENT, FLOAT_BYTES
from redpebble.lowering.llvm.call_tables import VECTOR_ROOM
from redpebble.lowering.neurons.connection_stream import working_rows
from redpebble.lowering.tiles.depth_first_groups import LayerGroup, groups_at

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
    roots = dict.fromkeys(buffers.placements[value].whole for value in buffers.first)
    lifetimes = [
        Lifetime(
            buffers.buffer_bytes(root),
            min(buffers.first[value] for value in buffers.sharing[root]),
            max(buffers.last[value] for value in buffers.sharing[root]),
        )
        for root in roots
    ]
    plan = plan_offsets(lifetimes)
    starts = dict(zip(roots, plan.offsets, strict=True))
    spans: dict[SSAValue, Span] = {}
    for value, (root, feature) in buffers.placements.items():
        start = starts[root] + feature * width * FLOAT_BYTES
        spans[value] = Span(start, start + buffers.buffer_bytes(value))
    return TileMemory(spans, plan.total)


class _Placement(NamedTuple):
    """A value lies in the buffer of `whole`, maybe its own, from some feature of that on."""

    whole: SSAValue
    feature: int


@dataclass
class _Buffers:
    """Values that share a buffer, under construction."""

    op: TileOp
    width: int
    placements: dict[SSAValue, _Placement] = field(default_factory=dict[SSAValue, _Placement])
    """Place of each value; the buffer is that of a value that lies in no other's."""
    sharing: dict[SSAValue, list[SSAValue]] = field(default_factory=dict[SSAValue, list[SSAValue]])
    """The values that lie in a buffer, by that of all of it."""
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
            self.placements[value], self.sharing[value] = _Placement(value, 0), [value]

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

    def place(self, value: SSAValue, whole: SSAValue, feature: int) -> None:
        """Let a value that has its own buffer lie in `whole`, with all that lies in it."""
        root, start = self.placements[whole]
        moved = self.sharing.pop(value)
        for member in moved:
            self.placements[member] = _Placement(root, start + feature + self.placements[member].feature)
        self.sharing[root] += moved

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
        latest = BEFORE
        for part, feature in self._aligned_parts(op.parts):
            if part not in self.first or self.is_placed(part) or isinstance(part.owner, NetworkOp | SplitOp):
                continue
            written = [self.first[value] for value in self.sharing[part]]
            # rows that come in are written exactly, so those of several operands may lie side by side
            in_order = min(written) > latest or latest == max(written) == ARRIVAL
            if in_order and list(op.parts).count(part) == 1:
                self.place(part, op.result, feature)
                latest = max(written)

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
        unshared = {value for value, members in self.sharing.items() if members == [value]}
        for step, inner in enumerate(self.op.body.block.ops):
            axis_map = axis_map_of(inner)
            if axis_map is None or not axis_map.keeps_features or inner.results[0] not in unshared:
                continue
            for operand in inner.operands:
                same = operand in unshared and features_of(operand) == features_of(inner.results[0])
                if same and self.last[operand] == step:
                    self.place(inner.results[0], operand, 0)
                    break
