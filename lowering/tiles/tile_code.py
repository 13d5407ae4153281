"""The code of a tile: rows in, the layers one after the other on feature-major buffers, rows out."""

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Block, Operation, SSAValue

from ...dialect.ops.constants import is_constant
from ...dialect.ops.layers import LinearOp
from ..llvm.builder import I64, Code, byte_at, counted_loop, entry_of, float_at, i64, is_zero
from ..llvm.call_tables import ConstantTable, Packing, values_of_constant
from ..llvm.transposition import columns_to_far_rows, columns_to_rows, rows_to_columns
from .thread_shares import WHOLE, Borders, Cut
from .tile_memory import Span, features_of

Share = Callable[[ir.Value, ir.Value], None]
"""Emits the work on some features: (first feature, their number)."""


STRIP_FLOATS = 1 << 16
"""Floats in a strip of features that is transposed at a time."""

STRIPS_FROM = 4
"""Number of strips above which rows are transposed strip by strip."""


@dataclass(frozen=True)
class ThreadTeam:
    """A thread's place among those that do a tile together."""

    share_count: int
    first: ir.Value
    """The first share of the thread."""
    end: ir.Value
    """The first share behind those of the thread."""
    scratch: ir.Value
    """Memory of the thread alone, in which its copies of `private` values lie."""
    private: Collection[SSAValue]
    barrier: Callable[[], None]
    """Emits the call that returns when all threads have made it."""


@dataclass(frozen=True)
class RowBlock:
    """Rows of a row-major buffer: the address of the first one, and their number."""

    address: ir.Value
    count: ir.Value


@dataclass(frozen=True)
class TileRows:
    """The rows that a tile stands for."""

    width: int
    """Columns for which kernels are chosen; the tile may have more, so that vectors hold whole columns."""
    count: ir.Value
    direct: Mapping[SSAValue, ir.Value]
    """The addresses of the rows of those values that ops read there, or write there, and nowhere else."""


@dataclass(frozen=True)
class TileCode:
    """The code of one tile for one width, under construction; without a team one thread does everything."""

    code: Code
    builder: ir.IRBuilder
    tables: tuple[ConstantTable, ir.Value]
    """Packed constants, and the table of their addresses."""
    width: int
    scratch: ir.Value
    spans: dict[SSAValue, Span]
    """Addresses of the values of the body in the scratch memory, feature-major."""
    team: ThreadTeam | None = None
    rows: TileRows | None = None
    """None where all columns count."""
    placed: Mapping[SSAValue, ir.Value] = field(default_factory=dict[SSAValue, ir.Value])
    """The addresses of values that lie outside of the scratch memory, feature-major, too."""

    def load_rows(self, target: SSAValue, rows: RowBlock, cut: Cut = WHOLE) -> None:
        """Emit the way in: `rows` become the columns of `target`."""
        stride, function = i64(features_of(target)), rows_to_columns(self.code, self.width)

        def share(first: ir.Value, features: ir.Value) -> None:
            source, columns = float_at(self.builder, rows.address, first), self.feature_at(target, first)
            self.builder.call(function, [source, columns, stride, features, rows.count, i64(self.width)])

        self.by_features(cut, features_of(target), self._in_strips(features_of(target), share))

    def store_rows(self, source: SSAValue, rows: RowBlock, cut: Cut = WHOLE) -> None:
        """Emit the way out: the columns of `source` become `rows`."""
        transpose = columns_to_far_rows if self._leaves_cache(features_of(source)) else columns_to_rows
        stride, function = i64(features_of(source)), transpose(self.code, self.width)

        def share(first: ir.Value, features: ir.Value) -> None:
            columns, target = self.feature_at(source, first), float_at(self.builder, rows.address, first)
            self.builder.call(function, [columns, target, stride, features, rows.count, i64(self.width)])

        self.by_features(cut, features_of(source), self._in_strips(features_of(source), share))

    def _in_strips(self, total: int, share: Share) -> Share:
        """Return the same work done some features at a time, where all together leave the cache.

        Rows are transposed a vector of them at a time: what is written for one has to be there still for the next.
        """
        if not self._leaves_cache(total):
            return share
        strip = STRIP_FLOATS // self.width

        def strips(first: ir.Value, features: ir.Value) -> None:
            builder = self.builder
            with counted_loop(builder, features, strip) as done:
                left = builder.sub(features, done)
                count = builder.select(builder.icmp_signed("<", left, i64(strip)), left, i64(strip))
                share(builder.add(first, done), count)

        return strips

    def _leaves_cache(self, features: int) -> bool:
        return features * self.width > STRIPS_FROM * STRIP_FLOATS

    def feature_at(self, value: SSAValue, feature: ir.Value) -> ir.Value:
        """Return the address of a feature of a value of the body."""
        begin = self.pointer(value)
        return begin if is_zero(feature) else float_at(self.builder, begin, self.builder.mul(feature, i64(self.width)))

    def pointer(self, value: SSAValue) -> ir.Value:
        """Return the buffer of a value of the body, or the packed values of a constant.

        Raises:
            ValueError: the value is neither.
        """
        if value in self.placed:
            return self.placed[value]
        if value in self.spans:
            private = self.team is not None and value in self.team.private
            scratch = self.team.scratch if self.team is not None and private else self.scratch
            return byte_at(self.builder, scratch, i64(self.spans[value].start))
        if not is_constant(value):
            raise ValueError("a tile uses a value from outside that is no constant")
        return self.constant((value, "values"), values_of_constant, value.owner)

    def constant(self, key: tuple[object, ...], pack: Packing, op: Operation | Block | None = None) -> ir.Value:
        """Return the address of numbers that are known by `key` in the whole network; see `ConstantTable.add`."""
        constants, table = self.tables
        if not constants.has(key):
            constants.add(key, pack, op if isinstance(op, Operation) else None)
        return constants.pointers(self.builder, table, key)[0]

    def by_features(self, cut: Cut, features: int, share: Share) -> None:
        """Emit `share` for all features at once, or for each share of the calling thread."""
        if self.team is None or cut.by == "everyone":
            share(i64(0), i64(features))
            return
        if cut.by != "features":
            with self.only_for(0):
                share(i64(0), i64(features))
            return
        self.each_share(cut.borders, lambda _, first, count: share(first, count))

    def each_share(self, borders: Borders, share: Callable[[ir.Value, ir.Value, ir.Value], None]) -> None:
        """Emit `share` (number, first feature, features) in a loop over the thread's shares that are not empty."""
        builder = self.builder
        layers = (value.owner for value in self.spans if isinstance(value.owner, LinearOp))
        # the borders of a layer follow from its weights, others from the shapes alone
        layer = next((op for op in layers if op.borders == borders), None)
        pack = partial(_packed_borders, borders) if layer is None else _borders_of_layer
        table_of_borders = self.constant(("borders", borders), pack, layer)
        start, end = (i64(0), i64(len(borders) - 1)) if self.team is None else (self.team.first, self.team.end)
        with counted_loop(builder, builder.sub(end, start)) as done:
            number = builder.add(start, done)
            pair = builder.gep(table_of_borders, [number], source_etype=I64)
            first, last = (entry_of(builder, pair, index, I64) for index in (0, 1))
            with builder.if_then(builder.icmp_signed("<", first, last)):
                share(number, first, builder.sub(last, first))

    @contextmanager
    def only_for(self, share: int) -> Generator[None]:
        """Let what is emitted in the `with` statement be done by the thread that has a share alone."""
        if self.team is None:
            yield
            return
        after_first = self.builder.icmp_signed("<=", self.team.first, i64(share))
        before_end = self.builder.icmp_signed("<", i64(share), self.team.end)
        with self.builder.if_then(self.builder.and_(after_first, before_end)):
            yield


def _packed_borders(borders: Borders, _: Operation | None = None) -> list[NDArray[np.int64]]:
    return [np.array(borders, dtype=np.int64)]


def _borders_of_layer(op: Operation | None) -> list[NDArray[np.int64]]:
    assert isinstance(op, LinearOp)
    return _packed_borders(op.borders)
