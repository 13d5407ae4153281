"""The code of a tile: rows in, the layers one after the other on feature-major buffers, rows out."""

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Block, Operation, SSAValue

from ...dialect.ops.constants import is_constant
from ...dialect.ops.layers import LinearOp
from ..llvm.builder import Code
from ..llvm.call_tables import ConstantTable, Packing, values_of_constant
from ..llvm.flow import call, loop, when
from ..llvm.transposition import columns_to_far_rows, columns_to_rows, rows_to_columns
from ..llvm.values import Bytes, Floats, Index, Longs, Number, Pointers
from .thread_shares import WHOLE, Borders, Cut
from .tile_memory import Span, features_of

Share = Callable[[Index, Index], None]
"""Emits the work on some features: (first feature, their number)."""


STRIP_FLOATS = 1 << 16
"""Floats in a strip of features that is transposed at a time."""

STRIPS_FROM = 4
"""Number of strips above which rows are transposed strip by strip."""


@dataclass(frozen=True)
class ThreadTeam:
    """A thread among those that do a tile together, and the share of it that it does now."""

    share_count: int
    share: Number
    scratch: Bytes
    """Memory of the thread alone, in which its copies of `private` values lie."""
    private: Collection[SSAValue]


@dataclass(frozen=True)
class RowBlock:
    """Rows of a row-major buffer: the address of the first one, and their number."""

    address: Floats
    count: Index


@dataclass(frozen=True)
class TileRows:
    """The rows that a tile stands for."""

    width: int
    """Columns for which kernels are chosen; the tile may have more, so that vectors hold whole columns."""
    count: Number
    direct: Mapping[SSAValue, Floats]
    """The addresses of the rows of those values that ops read there, or write there, and nowhere else."""


@dataclass(frozen=True)
class TileCode:
    """The code of one tile for one width, under construction; without a team one thread does everything."""

    code: Code
    tables: tuple[ConstantTable, Pointers]
    """Packed constants, and the table of their addresses."""
    width: int
    scratch: Bytes
    spans: dict[SSAValue, Span]
    """Addresses of the values of the body in the scratch memory, feature-major."""
    team: ThreadTeam | None = None
    rows: TileRows | None = None
    """None where all columns count."""
    placed: Mapping[SSAValue, Floats] = field(default_factory=dict[SSAValue, Floats])
    """The addresses of values that lie outside of the scratch memory, feature-major, too."""

    def load_rows(self, target: SSAValue, rows: RowBlock, cut: Cut = WHOLE) -> None:
        """Emit the way in: `rows` become the columns of `target`."""
        stride, function = features_of(target), rows_to_columns(self.code, self.width)

        def share(first: Index, features: Index) -> None:
            source, columns = rows.address.at(first), self.feature_at(target, first)
            call(function, source, columns, stride, features, rows.count, self.width)

        self.by_features(cut, features_of(target), self._in_strips(features_of(target), share))

    def store_rows(self, source: SSAValue, rows: RowBlock, cut: Cut = WHOLE) -> None:
        """Emit the way out: the columns of `source` become `rows`."""
        transpose = columns_to_far_rows if self._leaves_cache(features_of(source)) else columns_to_rows
        stride, function = features_of(source), transpose(self.code, self.width)

        def share(first: Index, features: Index) -> None:
            columns, target = self.feature_at(source, first), rows.address.at(first)
            call(function, columns, target, stride, features, rows.count, self.width)

        self.by_features(cut, features_of(source), self._in_strips(features_of(source), share))

    def _in_strips(self, total: int, share: Share) -> Share:
        """Return the same work done some features at a time, where all together leave the cache.

        Rows are transposed a vector of them at a time: what is written for one has to be there still for the next.
        """
        if not self._leaves_cache(total):
            return share
        strip = STRIP_FLOATS // self.width

        def strips(first: Index, features: Index) -> None:
            with loop(self.scratch.constant(features) if isinstance(features, int) else features, strip) as done:
                share(first + done, (features - done).smaller(strip))

        return strips

    def _leaves_cache(self, features: int) -> bool:
        return features * self.width > STRIPS_FROM * STRIP_FLOATS

    def feature_at(self, value: SSAValue, feature: Index) -> Floats:
        """Return the address of a feature of a value of the body."""
        return self.pointer(value).at(feature * self.width)

    def pointer(self, value: SSAValue) -> Floats:
        """Return the buffer of a value of the body, or the packed values of a constant.

        Raises:
            ValueError: the value is neither.
        """
        if value in self.placed:
            return self.placed[value]
        if value in self.spans:
            private = self.team is not None and value in self.team.private
            scratch = self.team.scratch if self.team is not None and private else self.scratch
            return scratch.after(self.spans[value].start).cast(Floats)
        if not is_constant(value):
            raise ValueError("a tile uses a value from outside that is no constant")
        return self.constant((value, "values"), values_of_constant, value.owner).cast(Floats)

    def constant(self, key: tuple[object, ...], pack: Packing, op: Operation | Block | None = None) -> Bytes:
        """Return the address of the one array of `key`, which `pack` makes of an op."""
        constants, table = self.tables
        return constants.pointers(table, key, pack, op if isinstance(op, Operation) else None)[0]

    def by_features(self, cut: Cut, features: int, share: Share) -> None:
        """Emit `share` for all features at once, or for those of the share at hand."""
        if self.team is None or cut.by == "everyone":
            share(0, features)
            return
        if cut.by != "features":
            with self.only_for(0):
                share(0, features)
            return
        self.each_share(cut.borders, lambda _, first, count: share(first, count))

    def each_share(self, borders: Borders, share: Callable[[Number, Number, Number], None]) -> None:
        """Emit `share` (number, first feature, features) for the share at hand, or each of them; not for empty ones."""
        layers = (value.owner for value in self.spans if isinstance(value.owner, LinearOp))
        # the borders of a layer follow from its weights, others from the shapes alone
        layer = next((op for op in layers if op.borders == borders), None)
        pack = partial(_packed_borders, borders) if layer is None else _borders_of_layer
        table_of_borders = self.constant(("borders", borders), pack, layer).cast(Longs)

        def one(number: Number) -> None:
            pair = table_of_borders.at(number)
            first, last = pair[0], pair[1]
            with when(first < last):
                share(number, first, last - first)

        if self.team is not None:
            one(self.team.share)
            return
        with loop(self.scratch.constant(len(borders) - 1)) as number:
            one(number)

    @contextmanager
    def only_for(self, share: int) -> Generator[None]:
        """Let what is emitted in the `with` statement be done with one share alone."""
        if self.team is None:
            yield
            return
        with when(self.team.share == share):
            yield


def _packed_borders(borders: Borders, _: Operation | None = None) -> list[NDArray[np.int64]]:
    return [np.array(borders, dtype=np.int64)]


def _borders_of_layer(op: Operation | None) -> list[NDArray[np.int64]]:
    assert isinstance(op, LinearOp)
    return _packed_borders(op.borders)


TileEmitter = Callable[[Any, TileCode, Cut], None]
"""Emits an op on the feature-major buffers of a tile; threads share it as the cut says.

An elementwise op may be cut at features, one that reduces over them by columns; see `thread_shares.cut_of`. An op that
keeps features may get its result's buffer in the place of an operand's.
"""
