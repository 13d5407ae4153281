"""Cut the layers of a tile so that threads can do one tile together, and say how long tiles take.

```mlir
%y = pebble.tile %x ... schedule <widths = [1, 8, 64]> ... {
  %h = pebble.linear %tile, %w kernel <...> : (tensor<?x1024xf32>, ...) -> tensor<?x1024xf32>
// pebble-share-tiles{threads=2} ->
%y = pebble.tile %x ... schedule <widths = [1, 8, 64], shares = 2, serial [1: 5.3, 8: 33.2, ...],
    shared [8: 20.1, ...]> ... {
  %h = pebble.linear %tile, %w kernel <...> cut [0, 512, 1024] : (tensor<?x1024xf32>, ...) -> tensor<?x1024xf32>
```

A batch of a few rows has fewer tiles than there are threads. Then they work on the same tile, each on some outputs of
every layer, and meet in between. A layer is cut where its shares have about as many connections, and no panel is torn,
unless that costs more than it saves. The times of layers are those of their kernels; to them come rows transposed into
columns and back, features that another thread has just written, which come slowly, and meetings. They were measured on
two cores whose second-level caches are their own. Layers on codes are cut when they are packed, by the work of their
panels. Of rows whose number is known one thread uses some widths only, and the others are dropped.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i64
from xdsl.ir import BlockArgument, Operation
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.attributes.schedule import ScheduleAttr
from ...dialect.ops.axis_maps import axis_map_of
from ...dialect.ops.constants import SparseConstantOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp, chain_in
from ...dialect.ops.tile_chain import CodeChain
from ...dialect.tensors import DYNAMIC, shape_of
from ...kernels.byte_times import FORMS
from ...kernels.families import FAMILIES
from ...kernels.family import SHARE
from ...kernels.tile_costs import BARRIER_US, FETCH_US, REDUCED_US, boundary_us, unknown_layer_us
from ...kernels.tile_widths import tiles_of
from ...sparse.csr import CscMatrix
from ..analysis.layer_times import kernel_us, rows_at
from ..analysis.tile_features import features_of
from ..analysis.weights import Weight, weight_of

WORTH_SHARING: Final = 0.9
"""Share of the time of one thread below which several are worth their trouble."""

CODE_SHARE: Final = 0.25
"""Time in which a code comes from another core over that of a float."""

ROW_CONNECTIONS: Final = 2
"""Connections that take as long as an output row does by itself."""


@dataclass(frozen=True)
class ShareTiles(ModulePass):
    """Write on tiles how long they take, and on tiles and layers how threads share them."""

    name = "pebble-share-tiles"

    threads: int = 1

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.threads < 1:
            raise PassFailedException(f"{self.name}: expected threads of 1 or more, got {self.threads}")
        for tile in [found for found in op.walk() if isinstance(found, TileOp)]:
            chain = chain_in(tile)
            if chain is None:
                self._share(tile)
            else:
                self._share_codes(tile, chain)
            if self.threads == 1:
                _drop_unused_widths(tile)

    def _share_codes(self, tile: TileOp, chain: CodeChain) -> None:
        """Let threads do a few rows of codes together, where that is predicted to take less time than by one."""
        kernels, widths = [op.kernel for op in chain.linears], tile.schedule.widths
        known = [kernel for kernel in kernels if kernel is not None and all(one in kernel.predicted for one in widths)]
        if len(known) < len(kernels):
            return
        serial_us = {width: sum(kernel.predicted[width] for kernel in known) for width in widths}
        shared_us = {width: self._shared_codes_us(chain, serial_us, width) for width in widths}
        worthwhile = [width for width in widths if shared_us[width] < WORTH_SHARING * serial_us[width]]
        if self.threads == 1:
            # rows of quads that a person has asked for may take longer than as many look-ups: that is no sharing
            worthwhile = []
        shared_us = {
            width: time for width, time in shared_us.items() if width >= min(worthwhile, default=widths[-1] + 1)
        }
        tile.schedule = ScheduleAttr(widths, self.threads if shared_us else 1, serial_us, shared_us)

    def _shared_codes_us(self, chain: CodeChain, serial_us: Mapping[int, float], width: int) -> float:
        """Return the time of rows of codes that all threads do together, which look up; each rounds them for itself."""
        others, kernel = 1 - 1 / self.threads, chain.kernel
        by_quads = kernel is not None and kernel.family_at(width) in FORMS
        fewer = max((rows for rows in serial_us if rows < width), default=1)
        time = width / fewer * serial_us[fewer] if by_quads else serial_us[width]
        inner = sum(features_of(op.result) for op in chain.linears[:-1]) * CODE_SHARE
        return time / self.threads + others * FETCH_US * inner * width + BARRIER_US * (len(chain.linears) - 1)

    def _share(self, tile: TileOp) -> None:
        widths, ops = tile.schedule.widths, list(tile.body.block.ops)
        layers = [op for op in ops if isinstance(op, LinearOp)]
        borders = {op: self._borders(op, widths[-1]) for op in layers}
        cut = {op: cut for op, cut in borders.items() if len(set(cut)) > 2}
        serial_us = {width: _serial_us(tile, width) for width in widths}
        shared_us = {width: self._shared_us(tile, cut, width) for width in widths} if cut else {}
        slow = max((width for width, time in shared_us.items() if time >= WORTH_SHARING * serial_us[width]), default=0)
        shared_us = {width: time for width, time in shared_us.items() if width > slow}
        for op in layers:
            op.cut = DenseArrayBase.from_list(i64, cut[op]) if shared_us and op in cut else None
        tile.schedule = ScheduleAttr(widths, self.threads if shared_us else 1, serial_us, shared_us)

    def _borders(self, op: LinearOp, width: int) -> list[int]:
        """Return where to cut a layer; nowhere when that takes longer than it saves."""
        weight = weight_of(op.weight)
        if weight is None or self.threads == 1:
            return []
        return _balanced(op, weight, self.threads) if self._saved_us(op, width) > 0 else []

    def _shared_us(self, tile: TileOp, cut: Collection[Operation], width: int) -> float:
        """Return the time of a tile that all threads do together; each transposes rows that come in for itself."""
        boundary, out = _boundary_features(tile), sum(features_of(value) for value in tile.yielded)
        of_rows = _of_rows(tile, width)
        rows_out = boundary_us(boundary, width, of_rows=of_rows) * out / max(boundary, 1)
        saved = sum(self._saved_us(op, width, of_rows=of_rows) for op in cut if isinstance(op, LinearOp))
        return _serial_us(tile, width) - saved - (1 - 1 / self.threads) * rows_out

    def _saved_us(self, op: LinearOp, width: int, *, of_rows: bool = False) -> float:
        """Return what threads save on a layer."""
        others = 1 - 1 / self.threads
        comes_in = isinstance(op.x, BlockArgument)
        fetched = 0.0 if comes_in else others * FETCH_US * features_of(op.x) * width
        return others * _linear_us(op, width, of_rows=of_rows) - fetched - BARRIER_US


def _drop_unused_widths(tile: TileOp) -> None:
    """Leave only the widths that one thread cuts the rows of a tile into, where these are known: others take code."""
    leading, schedule = shape_of(tile.inputs[0])[:-1], tile.schedule
    rows = prod(leading)
    if DYNAMIC in leading or not rows:
        return
    used = {one.width for one in tiles_of(schedule.least_rows, rows)}
    widths = [width for width in schedule.widths if width in used]
    serial_us = {width: time for width, time in schedule.serial.items() if width in used}
    tile.schedule = ScheduleAttr(widths, serial=serial_us)


def _boundary_features(tile: TileOp) -> int:
    """Return the features that come in and leave."""
    return sum(features_of(value) for value in (*tile.body.block.args, *tile.yielded))


def _of_rows(tile: TileOp, width: int) -> bool:
    """Return whether tiles of a width are rows."""
    layers = [op for op in tile.body.block.ops if isinstance(op, LinearOp)]
    return rows_at([op.kernel for op in layers if op.kernel is not None], width)


def _serial_us(tile: TileOp, width: int) -> float:
    """Return the time in which one thread does a tile."""
    of_rows = _of_rows(tile, width)
    layers = (op for op in tile.body.block.ops if isinstance(op, LinearOp))
    return around_layers_us(tile, width) + sum(_linear_us(op, width, of_rows=of_rows) for op in layers)


def around_layers_us(tile: TileOp, width: int) -> float:
    """Return the microseconds that one thread needs for what a tile does beside its layers."""
    others = (op for op in tile.body.block.ops if not isinstance(op, LinearOp))
    boundary = boundary_us(_boundary_features(tile), width, of_rows=_of_rows(tile, width))
    return boundary + sum(_reduction_us(op, width) for op in others)


def _reduction_us(op: Operation, width: int) -> float:
    """Return an estimate of the time of an op that is no layer: only reductions take any."""
    axis_map = axis_map_of(op)
    reduces = axis_map is not None and axis_map.reduces
    return REDUCED_US * features_of(op.operands[0]) * width if reduces else 0.0


def _linear_us(op: LinearOp, width: int, *, of_rows: bool) -> float:
    known = None if op.kernel is None else kernel_us(op.kernel, width, of_rows=of_rows)
    if known is not None:
        return known
    weight = weight_of(op.weight)
    connections = 0 if weight is None else len(weight.values) if isinstance(weight, CscMatrix) else weight.size
    return unknown_layer_us(connections, width)


def _balanced(op: LinearOp, weight: Weight, shares: int) -> list[int]:
    """Return borders of shares of about as many connections, which cut no panel."""
    outputs = weight.shape[1]
    counts = np.diff(weight.pointers) if isinstance(weight, CscMatrix) else np.full(outputs, weight.shape[0])
    before = np.append(0, np.cumsum(counts + ROW_CONNECTIONS))
    chosen = op.kernel.choices.values() if op.kernel is not None else ()
    unit = max((FAMILIES[name].share for name in chosen if name in FAMILIES), default=SHARE)
    borders = np.arange(0, outputs, unit)
    borders = borders[~_inside_panels(op)[borders]]
    wanted = before[-1] * np.arange(1, shares) / shares
    nearest = np.abs(before[borders][:, None] - wanted[None, :]).argmin(axis=0)
    return [0, *borders[nearest].tolist(), outputs]


def _inside_panels(op: LinearOp) -> NDArray[np.bool_]:
    """Return for each output whether a panel has outputs both before it and from it on; they share their inputs."""
    outputs = shape_of(op.weight)[1]
    depth = np.zeros(outputs + 1, dtype=np.int64)
    panels = op.weight.owner.panels if isinstance(op.weight.owner, SparseConstantOp) else None
    for _, members in panels.panels if panels is not None else []:
        np.add.at(depth, members.min(axis=1) + 1, 1)
        np.add.at(depth, members.max(axis=1) + 1, -1)
    return np.cumsum(depth)[:outputs] > 0
