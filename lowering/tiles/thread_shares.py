"""Shares of threads in the ops of one tile: what a share of an op touches, and where all have to meet.

A tile whose schedule has P shares cuts each of its ops: linear layers at the outputs that the IR gives, elementwise ops
like what they read, normalisations and softmax by columns. What has no cut is done by the thread that has the first
share. Threads meet before an op that touches memory which an earlier op's other shares may still write or read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from xdsl.ir import Operation, SSAValue

from ...dialect.ops.axis_maps import axis_map_of
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.tile import TileOp
from ...kernels.family import SHARE
from ..llvm.values import FLOAT_BYTES
from .tile_memory import Span, features_of

Borders = tuple[int, ...]
"""The first feature of each share, and the number of features."""


@dataclass(frozen=True)
class Cut:
    """The cut of an op: at features, by columns, not at all, or each thread does all of it for itself."""

    by: Literal["features", "columns", "nothing", "everyone"]
    borders: Borders = ()


WHOLE, COLUMNS, EVERYONE = Cut("nothing"), Cut("columns"), Cut("everyone")


def even_borders(features: int, shares: int) -> Borders:
    """Return borders of `shares` about equal shares of multiples of `SHARE` features; those at the end may be empty."""
    cells = -(-features // SHARE)
    return (*(min(features, SHARE * (cells * share // shares)) for share in range(shares)), features)


class Access(NamedTuple):
    """Memory that an op reads or writes; shares with the same mark touch each their own part of it."""

    span: Span
    mark: object
    writes: bool


@dataclass(frozen=True)
class OpShare:
    """An op in a shared tile: how it is cut, and whether all threads meet before it."""

    cut: Cut
    needs_barrier: bool


@dataclass(frozen=True)
class SharedPlan:
    """The cuts of the rows that come in, of every op, and of the rows that go out."""

    arguments: Sequence[Cut]
    ops: Mapping[Operation, OpShare]
    results: Sequence[OpShare]


def plan_alone(op: TileOp) -> SharedPlan:
    """Return the plan of tiles that one thread does."""
    whole = OpShare(WHOLE, needs_barrier=False)
    ops = {inner: whole for inner in op.body.block.ops if not isinstance(inner, YieldOp)}
    return SharedPlan([WHOLE] * len(op.body.block.args), ops, [whole] * len(op.yielded))


def plan_sharing(op: TileOp, spans: Mapping[SSAValue, Span], width: int) -> SharedPlan:
    """Return how threads share tiles of `width` columns of `op`, whose values lie at `spans`."""
    shares = op.schedule.shares
    cuts: dict[SSAValue, Cut] = {}
    since: set[Access] = set()

    def shared(cut: Cut, accesses: Sequence[Access]) -> OpShare:
        needs_barrier = any(_conflict(one, other) for one in accesses for other in since)
        if needs_barrier:
            since.clear()
        since.update(accesses)
        return OpShare(cut, needs_barrier)

    private = private_arguments(op, spans)
    for argument in op.body.block.args:
        even = Cut("features", even_borders(features_of(argument), shares))
        cuts[argument] = EVERYONE if argument in private else even
        since.add(_access(argument, spans, cuts[argument], writes=True))
    shared_ops: dict[Operation, OpShare] = {}
    for inner in op.body.block.ops:
        if isinstance(inner, YieldOp):
            continue
        cut = _cut_of(inner, cuts, shares)
        cuts.update(dict.fromkeys(inner.results, cut))
        still = isinstance(inner, ConcatOp | SplitOp) and not copied_parts(inner, spans, width)
        shared_ops[inner] = shared(cut, [] if still else _accesses(inner, spans, cut, private))
    results: list[OpShare] = []
    for value in op.yielded:
        cut = cuts[value]
        if cut.by != "features" or isinstance(value.owner, ConcatOp | SplitOp):
            cut = Cut("features", even_borders(features_of(value), shares))
        results.append(shared(cut, [_access(value, spans, cut, writes=False)]))
    return SharedPlan([cuts[argument] for argument in op.body.block.args], shared_ops, results)


def copied_parts(op: ConcatOp | SplitOp, spans: Mapping[SSAValue, Span], width: int) -> list[tuple[SSAValue, int]]:
    """Return the parts that do not lie where they are in the whole, each with its first feature there."""
    whole, feature = spans[op.result if isinstance(op, ConcatOp) else op.x], 0
    copied: list[tuple[SSAValue, int]] = []
    for part in op.parts:
        if spans[part].start != whole.start + feature * width * FLOAT_BYTES:
            copied.append((part, feature))
        feature += features_of(part)
    return copied


def _cut_of(op: Operation, cuts: Mapping[SSAValue, Cut], shares: int) -> Cut:
    """Return how `op` is cut, given how its operands are."""
    axis_map = axis_map_of(op)
    if isinstance(op, LinearOp):
        return Cut("features", op.borders) if op.borders else WHOLE
    if axis_map is not None and axis_map.is_elementwise:
        features = features_of(op.results[0])
        like = [cuts[operand] for operand in op.operands if operand in cuts and features_of(operand) == features]
        same = next((cut for cut in like if cut.by == "features" and cut.borders[-1] == features), None)
        return same or Cut("features", even_borders(features, shares))
    return COLUMNS if axis_map is not None and axis_map.reduces else WHOLE


def private_arguments(op: TileOp, spans: Mapping[SSAValue, Span]) -> set[SSAValue]:
    """Return the rows that come in of which each thread makes columns for itself.

    To transpose them twice is faster than to read what another core has just written. What others write into the same
    memory is not for them: a value in its place, or the concat it is part of.
    """
    arguments = set(op.body.block.args)
    return {
        argument
        for argument in arguments
        if all(
            isinstance(use.operation, LinearOp)
            or (use.operation.results and not _overlap(use.operation, argument, spans))
            for use in argument.uses
        )
    }


def _accesses(op: Operation, spans: Mapping[SSAValue, Span], cut: Cut, private: Collection[SSAValue]) -> list[Access]:
    """Return what `op` reads and writes; a linear layer reads all features for each share."""
    every = isinstance(op, LinearOp) and cut.by == "features"
    accesses = [
        Access(spans[operand], None, writes=False)
        if every and operand not in private
        else _access(operand, spans, EVERYONE if operand in private else cut, writes=False)
        for operand in op.operands
        if operand in spans
    ]
    return [*accesses, *(_access(result, spans, cut, writes=True) for result in op.results)]


def _access(value: SSAValue, spans: Mapping[SSAValue, Span], cut: Cut, *, writes: bool) -> Access:
    """Return the access to a value; what one thread does for itself never waits for itself."""
    features = features_of(value)
    if cut.by == "features" and cut.borders[-1] != features:
        return Access(spans[value], None, writes)  # one row for all features
    mark = cut if cut.by in ("nothing", "everyone") else (cut, spans[value].start, features)
    return Access(spans[value], mark, writes)


def _overlap(op: Operation, value: SSAValue, spans: Mapping[SSAValue, Span]) -> bool:
    """Return whether a result of `op` lies where `value` does."""
    own = spans[value]
    return any(spans[result].start < own.end and own.start < spans[result].end for result in op.results)


def _conflict(one: Access, other: Access) -> bool:
    """Return whether a share of one access may touch what a different share of the other one does, and one writes."""
    apart = one.span.end <= other.span.start or other.span.end <= one.span.start
    same = one.mark is not None and one.mark == other.mark
    return (one.writes or other.writes) and not apart and not same
