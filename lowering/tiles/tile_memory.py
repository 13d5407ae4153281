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
from ...dialect.ops.elementwise import ConvertOp
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.ops.tile import TileOp
from ...dialect.tensors import shape_of
from ..kernels.kernel_form import OUTPUT_PADDING
from ..llvm.call_tables import VECTOR_ROOM
from ..llvm.values import ALIGNMENT, FLOAT_BYTES
from ..shared_buffers import SharedBuffers
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
    tile = _Buffers(op, width)
    tile.place_parts()
    tile.reuse_operands()
    plan, spans = tile.shared.plan(tile.buffer_bytes), dict[SSAValue, Span]()
    for value in tile.first:
        whole, feature = tile.shared.place(value)
        start = plan.starts[whole] + feature * width * FLOAT_BYTES
        spans[value] = Span(start, start + tile.buffer_bytes(value))
    return TileMemory(spans, plan.total)


@dataclass
class _Buffers:
    """Values that share a buffer, under construction."""

    op: TileOp
    width: int
    shared: SharedBuffers = field(default_factory=SharedBuffers)
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
            self.shared.add(value, self.first[value], self.last[value])

    def buffer_bytes(self, value: SSAValue) -> int:
        """Return the bytes that a value takes, with what is written or worked on behind it."""
        owner, extra = value.owner, 0
        group = self.groups.get(owner)
        if group is not None and owner is group.last:
            extra = group.neuron_order.slot_count + 1
        return ((features_of(value) + OUTPUT_PADDING + extra) * self.width + VECTOR_ROOM) * FLOAT_BYTES

    @cached_property
    def groups(self) -> Mapping[object, LayerGroup]:
        """The groups of layers that run together, by layer."""
        return groups_at(self.op, self.width)

    def place_parts(self) -> None:
        """Let parts of concats and splits lie in the whole."""
        for inner in self.op.body.block.ops:
            if isinstance(inner, ConcatOp):
                self._place_operands(inner)
        for inner in self.op.body.block.ops:
            if isinstance(inner, SplitOp):
                for part, feature in self._aligned_parts(inner.parts):
                    if part not in self.shared.places:
                        self.shared.put(part, inner.x, feature)

    def _place_operands(self, op: ConcatOp) -> None:
        """Place operands of a concat that are computed one after the other: each may write over what comes behind."""
        latest, counts = BEFORE, Counter(op.parts)
        for part, feature in self._aligned_parts(op.parts):
            if part not in self.first or part in self.shared.places or isinstance(part.owner, SplitOp):
                continue
            use = self.shared.used[part]
            # rows that come in are written exactly, so those of several operands may lie side by side
            in_order = use.first > latest or latest == use.newest == ARRIVAL
            if in_order and counts[part] == 1:
                self.shared.put(part, op.result, feature)
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
        unshared = {*self.shared.used} - {place.whole for place in self.shared.places.values()}
        for step, inner in enumerate(self.op.body.block.ops):
            axis_map = axis_map_of(inner)
            if axis_map is None or not axis_map.keeps_features or inner.results[0] not in unshared:
                continue
            if isinstance(inner, ConvertOp):
                continue  # codes are narrower than floats
            for operand in inner.operands:
                same = operand in unshared and features_of(operand) == features_of(inner.results[0])
                if same and self.last[operand] == step:
                    self.shared.put(inner.results[0], operand, 0)
                    break
