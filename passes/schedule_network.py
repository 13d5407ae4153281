"""Choose between running layers one after the other and depth first, where their values leave the cache.

```mlir
%y = pebble.tile %x ... schedule <layer_by_layer, widths = [1, 8, 16]> ... { 12 layers of 65536 neurons }
// ->
%y = pebble.tile %x ... schedule <layer_by_layer, widths = [1, 8, 16, 64]>
    depth_first <from 64, [<layers 0 to 11, "3210 slots; ...", runs dense<...>, order dense<...>, slots dense<...>>]>
```

Layer by layer, every value of a tile is written and read again. Where a layer's values do not fit the second-level
cache and neurons read others near them, wherever these stand, a group of layers runs depth first instead: see
`redpebble.search.wavefront`. A group is as long as the values that are alive at a time fit the cache: all layers of a
band, half of those of a butterfly, whose second half has other neighbours. Random layers have no such order; two pairs
of them in a row, and nothing more is tried. From which width on it pays, what moves between the caches decides, counted
for both schedules. One row is always better off layer by layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from redpebble.dialect.constants import SparseConstantOp
from redpebble.dialect.decisions import ScheduleAttr, Sharing
from redpebble.dialect.depth_first import DepthFirstAttr, LayerGroupAttr
from redpebble.dialect.layer_chain import chain_arrays, chain_of
from redpebble.dialect.layers import LinearOp
from redpebble.dialect.network import NetworkArrays
from redpebble.dialect.tensors import shape_of
from redpebble.dialect.tile import TileOp
from redpebble.dialect.wavefront import MOST_SLOTS, WavefrontAttr
from redpebble.passes.tile_costs import turn_us
from redpebble.search.row_cache import row_traffic
from redpebble.search.wavefront import Wavefront, depth_first
from redpebble.theory.network import Network
from redpebble.theory.tile_traffic import TileTraffic

WIDTHS: Final = (64, 32, 16)
"""Batch columns of tiles that may run depth first: the weights are streamed once for each tile."""

SLOT_SHARE: Final = 0.8
"""Of the second-level cache that the values alive may take; the stream passes by."""

HELD_SHARE: Final = 0.85
"""Of a cache that holds rows: lines are in the way of others."""

WORTHWHILE: Final = 0.9
"""Share of the time layer by layer below which another schedule is worth it."""

MOST_FAILURES: Final = 2
"""Pairs of layers in a row without an order after which none is looked for."""


class _Group(NamedTuple):
    """Layers from one number up to another, excluded, and their wavefront."""

    first: int
    end: int
    found: Wavefront


@dataclass(frozen=True)
class ScheduleNetwork(ModulePass):
    """Write groups of layers that run depth first on tiles."""

    name = "pebble-schedule-network"

    l1_bytes: int = 48 << 10
    l2_bytes: int = 2 << 20
    """Of a core."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not 0 < self.l1_bytes <= self.l2_bytes:
            raise PassFailedException(
                f"{self.name}: caches of {self.l1_bytes}, {self.l2_bytes} bytes, expected ascending positive sizes"
            )
        for tile in [found for found in op.walk() if isinstance(found, TileOp)]:
            self._schedule(tile)

    def _schedule(self, tile: TileOp) -> None:
        layers = chain_of(tile.body.block)
        sparse = layers and all(isinstance(layer.weight.owner, SparseConstantOp) for layer in layers)
        if not sparse or not self._leaves_cache(layers):
            return
        found = _Groups(layers, self._slots(WIDTHS[0])).find()
        groups = [pair for pair in (self._described(layers, group) for group in found) if pair is not None]
        if groups:
            _write(tile, max(width for width, _ in groups), [group for _, group in groups])

    def _leaves_cache(self, layers: Sequence[LinearOp]) -> bool:
        most = max(sum(shape_of(layer.weight)) for layer in layers)
        return 4 * WIDTHS[0] * most > self.l2_bytes

    def _slots(self, width: int) -> int:
        return min(int(SLOT_SHARE * self.l2_bytes) // (4 * width), MOST_SLOTS)

    def _described(self, layers: Sequence[LinearOp], group: _Group) -> tuple[int, LayerGroupAttr] | None:
        """Return from which width on a group pays, with its attribute; None where it never does."""
        arrays, found = chain_arrays(layers[group.first : group.end]), group.found
        if not len(arrays.sources):  # biases alone
            return None
        start, words = 0, ""
        accesses = (_slot_accesses(arrays, found), _layer_accesses(arrays))
        for width in WIDTHS:
            after, before = (self._traffic(accessed, width, len(arrays.sources)) for accessed in accesses)
            times = [traffic.microseconds(width) for traffic in (after, before)]
            if times[0] >= WORTHWHILE * times[1]:
                break
            start = width
            words = words or (
                f"{found.slot_count} slots; at {width} {after.far_bytes / 1e6:.1f} MB from beyond the second-level "
                f"cache and {times[0]:.0f} us against {before.far_bytes / 1e6:.1f} MB and {times[1]:.0f} us"
            )
        wavefront = WavefrontAttr.of(found.order, found.slots, found.runs)
        return (start, LayerGroupAttr.of((group.first, group.end - 1), words, wavefront)) if start else None

    def _traffic(self, accessed: "_Accesses", width: int, connections: int) -> TileTraffic:
        row = 4 * width
        near, far = (
            row * row_traffic(accessed.rows, accessed.changed, int(HELD_SHARE * size) // row).total
            for size in (self.l1_bytes, self.l2_bytes)
        )
        return TileTraffic(connections, near, far)


def _write(tile: TileOp, width: int, groups: list[LayerGroupAttr]) -> None:
    """Write the schedule; threads share no tiles of such a network, whose layers are wide and rows many."""
    widths = sorted({*tile.schedule.tile_widths, WIDTHS[0]})
    layers = chain_of(tile.body.block)
    for layer in layers:
        layer.cut = None
    features = shape_of(layers[0].weight)[0] + shape_of(layers[-1].weight)[1]
    alone = {one: turn_us(features, one) for one in widths}
    tile.schedule = ScheduleAttr.of(tile.schedule.order.data, widths, Sharing(1, alone, {}))
    tile.depth_first = DepthFirstAttr.of(width, groups)


@dataclass(frozen=True)
class _Groups:
    """The search for groups of layers whose wavefront has at most some slots."""

    layers: Sequence[LinearOp]
    slots: int

    def find(self) -> list[_Group]:
        """Return groups of two or more layers, each as long as it fits."""
        groups: list[_Group] = []
        start = failures = 0
        while start < len(self.layers) - 1 and failures < MOST_FAILURES:
            found = self._longest(start)
            if found is None:
                failures, start = failures + 1, start + 2
                continue
            groups.append(found)
            failures, start = 0, found.end
        return groups

    def _longest(self, start: int) -> _Group | None:
        """Return the longest group from a layer on: all that are left if they fit, else as halving finds it."""
        best, limit = self._tried(start, start + 2), len(self.layers) + 1
        end = limit - 1
        while best is not None and best.end < limit - 1:
            found = self._tried(start, end)
            if found is None:
                limit = end
            else:
                best = found
            end = (best.end + limit) // 2
        return best

    def _tried(self, start: int, end: int) -> _Group | None:
        arrays = chain_arrays(self.layers[start:end])
        inputs = shape_of(self.layers[start].weight)[0]
        count = inputs + len(arrays.biases)
        network = Network(count, arrays.sources, arrays.targets, np.arange(inputs, dtype=np.int64), arrays.outputs)
        found = depth_first(network)
        return _Group(start, end, found) if found.slot_count <= self.slots else None


class _Accesses(NamedTuple):
    """The rows that a schedule touches one after the other, and where it changes them."""

    rows: NDArray[np.int32]
    changed: NDArray[np.bool_]


def _layer_accesses(arrays: NetworkArrays) -> _Accesses:
    """Return the rows of the values of all neurons, in the order in which layers run: sources, then the target."""
    ends = np.append(np.flatnonzero(np.diff(arrays.targets)) + 1, len(arrays.targets))
    rows = np.insert(arrays.sources, ends, arrays.targets[ends - 1])
    return _Accesses(rows.astype(np.int32), _changes(len(rows), ends))


def _slot_accesses(arrays: NetworkArrays, found: Wavefront) -> _Accesses:
    """Return the slots of the values, in the order of a wavefront."""
    place = np.full(len(found.slots), len(found.order), dtype=np.int64)
    place[found.order] = np.arange(len(found.order))
    ordered = np.argsort(place[arrays.targets], kind="stable")
    targets = arrays.targets[ordered]
    ends = np.append(np.flatnonzero(np.diff(targets)) + 1, len(targets))
    rows = np.insert(found.slots[arrays.sources[ordered]], ends, found.slots[targets[ends - 1]])
    known = rows >= 0
    changed = _changes(len(rows), ends)
    return _Accesses(rows[known].astype(np.int32), changed[known])


def _changes(count: int, ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    changed = np.zeros(count, dtype=np.bool_)
    changed[ends + np.arange(len(ends))] = True
    return changed
