"""Choose between running layers one after the other and depth first, where their values leave the cache.

```mlir
%y = pebble.tile %x ... schedule <widths = [1, 8, 16]> ... { 12 layers of 65536 neurons }
// ->
%y = pebble.tile %x ... schedule <widths = [1, 8, 16, 64]>
    depth_first <from 64, [<layers 0 to 11, predicted [64: 20390.0], kilobytes [64: 51000.0], "3196 slots; ...",
        runs dense<...>, order dense<...>, slots dense<...>>]>
```

Layer by layer, every value of a tile is written and read again. Where a layer's values do not fit the second-level
cache and neurons read others near them, wherever these stand, a group of layers runs depth first instead: see
`redpebble.theory.depth_first.depth_first_order`. A group is as long as the values that are alive at a time fit the
cache: all layers of a band, half of those of a butterfly, whose second half has other neighbours. Random layers have no
such order; two pairs of them in a row, and nothing more is tried. How wide tiles are, and from which width on it pays,
what moves between the caches decides, counted for both schedules. One row is always better off layer by layer.

A group runs in blocks of outputs, and a few levels of a block part by part, where parts that read nothing of each other
fit a nearer cache. How threads split a batch follows from the predicted times of all widths, as everywhere. On request
groups, the sizes, order and parts of their blocks, and the width are annealed from there: see
`redpebble.theory.depth_first.annealing`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.attributes.depth_first_order import MOST_SLOTS, DepthFirstOrderAttr
from ...dialect.attributes.schedule import ScheduleAttr
from ...dialect.ops.constants import SparseConstantOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp, chain_in
from ...dialect.ops.tile_chain import chain_of
from ...dialect.ops.tile_depth_first import DepthFirstAttr, LayerGroupAttr
from ...dialect.provenance import SEARCH
from ...dialect.tensors import shape_of
from ...kernels.tile_costs import transpose_us
from ...kernels.tile_widths import widths_in_use
from ...sparse.csr import CsrPattern
from ...theory.depth_first.annealing import Prices, Schedule, anneal_schedule
from ...theory.depth_first.depth_first_order import BLOCK
from ...theory.depth_first.traffic import Caches, Group, ScheduleCosts

WIDTHS: Final = (64, 32, 16)
"""Batch columns of tiles that may run depth first: the weights are streamed once for each tile."""

FLOAT, CODE = 4, 1
"""Bytes of a value: the lines of codes are a quarter as long, so that they leave a cache later."""

USUAL: Final = 64
"""The width of tiles that run layer by layer."""

SLOT_SHARE: Final = 0.45
"""Share of the second-level cache that the values alive in a group may take; the stream passes by."""

LARGER: Final = (1, 2, 8)
"""Times the size of usual blocks: the largest hold the outputs that leave together where these stand far apart."""

LEVELS: Final = 4
"""Levels of a block that run part by part, where that is predicted to pay."""

WORTHWHILE: Final = 0.9
"""Share of the time layer by layer below which another schedule is worth it."""

WORTH_TAKING: Final = 0.97
"""Share of the time below which a schedule that a search found is taken: predictions are not better than that."""

MOST_FAILURES: Final = 2
"""Pairs of layers in a row without an order after which none is looked for."""


@dataclass(frozen=True)
class ScheduleNetwork(ModulePass):
    """Write groups of layers that run depth first on tiles."""

    name = "pebble-schedule-network"

    l1_bytes: int = 48 << 10
    """Bytes of a core's first-level cache."""
    l2_bytes: int = 2 << 20
    """Bytes of its second-level cache."""
    seconds: float = 0.0
    """Approximate time to anneal; the same number gives the same schedule on every machine."""
    seed: int = 0

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not 0 < self.l1_bytes <= self.l2_bytes:
            raise PassFailedException(
                f"{self.name}: expected ascending positive sizes of caches, got {self.l1_bytes}, {self.l2_bytes} bytes"
            )
        if not 0 <= self.seconds < float("inf"):
            raise PassFailedException(f"{self.name}: expected a search of 0 seconds or more, got {self.seconds}")
        op.attributes.pop(SEARCH, None)
        traces = [self._schedule(found) for found in op.walk() if isinstance(found, TileOp)]
        if any(traces):
            op.attributes[SEARCH] = StringAttr("; ".join(filter(None, traces)))

    def _schedule(self, tile: TileOp) -> str:
        """Schedule a tile; return what a search found."""
        layers = chain_of(tile.body.block)
        sparse = layers and all(isinstance(layer.weight.owner, SparseConstantOp) for layer in layers)
        # where rows are dropped, that is done between layers
        value_bytes = CODE if chain_in(tile) is not None else FLOAT
        if tile.dead_rows is not None or not sparse or not self._leaves_cache(layers, value_bytes):
            return ""
        caches = Caches(self.l1_bytes, self.l2_bytes)
        costs = ScheduleCosts(list(map(_sparse_layer, layers)), caches, _widths_of(value_bytes), value_bytes)
        lines = 0 if value_bytes == FLOAT else 2 * max(max(shape_of(layer.weight)) for layer in layers)
        prices = Prices(costs, transpose_us, MOST_SLOTS - lines)
        chosen, trace = _best_width(prices, self._groups(costs)), ""
        if self.seconds > 0:
            chosen, trace = self.annealed(prices, chosen)
        start, serial_us = _least_width(prices, chosen), _predicted_times(layers, tile.schedule.widths)
        # kernels know caches that layers hardly leave better than a count of rows does
        limit = min((time / width for width, time in serial_us.items()), default=float("inf"))
        if start is not None and prices.row_us(chosen) < limit:
            _write(tile, _Written(prices, chosen, start))
        return trace

    def annealed(self, prices: Prices, start: Schedule) -> tuple[Schedule, str]:
        """Return the schedule that a search found, or that of the start, and what was found.

        Who knows schedules of other networks begins with them here.
        """
        found = anneal_schedule(prices, start, self.seconds, np.random.default_rng(self.seed))
        before, after = prices.row_us(start), 1e-6 * found.cost
        trace = f"{before:.4g} -> {after:.4g} us a row in {found.trace[-1].proposals} proposals"
        if after <= WORTH_TAKING * before:
            return found.best, trace
        return start, f"{trace}, too little to be taken"

    def _groups(self, costs: ScheduleCosts) -> list[Group]:
        """Return groups whose values fit the second-level cache in tiles as wide as there are any for."""
        room = int(SLOT_SHARE * self.l2_bytes) // costs.value_bytes
        found = (_Groups(costs, room // width).find() for width in costs.widths)
        return next((groups for groups in found if groups), list[Group]())

    def _leaves_cache(self, layers: Sequence[LinearOp], value_bytes: int) -> bool:
        most = max(sum(shape_of(layer.weight)) for layer in layers)
        return value_bytes * USUAL * most > self.l2_bytes


def _widths_of(value_bytes: int) -> tuple[int, ...]:
    """Return the widths of tiles that may run depth first; codes have vectors of 64."""
    return WIDTHS if value_bytes == FLOAT else (USUAL,)


def _sparse_layer(layer: LinearOp) -> CsrPattern:
    constant = layer.weight.owner
    assert isinstance(constant, SparseConstantOp)
    return constant.weight.pattern


def _features(layers: Sequence[LinearOp]) -> int:
    """Return the values of a row that come into a chain, and that leave it."""
    return shape_of(layers[0].weight)[0] + shape_of(layers[-1].weight)[1]


def _best_width(prices: Prices, groups: Sequence[Group]) -> Schedule:
    """Return those groups that pay in tiles of the width at which a row takes the least time."""

    def at(width: int) -> Schedule:
        chosen = (_with_best_block(prices, group, width) for group in groups)
        return Schedule(tuple(group for group in chosen if _pays(prices, (group,), width)), width)

    return min(map(at, prices.costs.widths), key=prices.row_us) if groups else Schedule((), USUAL)


def _with_best_block(prices: Prices, group: Group, width: int) -> Group:
    """Return a group in blocks as they are, or larger ones: more neighbours share values, and more live at once."""
    choices = [group._replace(block=times * group.block) for times in LARGER]
    best = min(choices, key=lambda one: prices.together(one, width))
    return min((best, best._replace(levels=LEVELS)), key=lambda one: prices.together(one, width))


def _pays(prices: Prices, groups: tuple[Group, ...], width: int) -> bool:
    """Return whether groups are faster than the same layers one after the other."""
    layer_by_layer = sum(prices.one_by_one(group.first, group.end, width) for group in groups)
    depth_first = sum(prices.together(group, width) for group in groups)
    return depth_first < WORTHWHILE * layer_by_layer


def _least_width(prices: Prices, schedule: Schedule) -> int | None:
    """Return the width from which on a schedule pays; None where it has no groups, or they do not."""
    start = None
    for width in (width for width in prices.costs.widths if width <= schedule.width):
        if not schedule.groups or not _pays(prices, schedule.groups, width):
            break
        start = width
    return start


class _Written(NamedTuple):
    """A schedule to write, and the width from which on it pays."""

    prices: Prices
    schedule: Schedule
    start: int

    @property
    def widths(self) -> list[int]:
        """The widths of its tiles, ascending."""
        return [width for width in reversed(self.prices.costs.widths) if self.start <= width <= self.schedule.width]

    def attribute(self, group: Group) -> LayerGroupAttr:
        """Return what is written for a group."""
        prices, width = self.prices, self.schedule.width
        cost, found = prices.costs.group(group), prices.costs.found(group)
        layer_by_layer = prices.costs.one_by_one(group.first, group.end)[width]
        traffic = {one: cost.traffic[one] for one in self.widths}
        times = {one: moved.microseconds(one) for one, moved in traffic.items()}
        order = " in an annealed order" if group.blocks else ""
        order += f", {group.levels} levels of a part at a time" if group.levels else ""
        reason = (
            f"{cost.slots} slots, blocks of {group.block}{order}; at {width} "
            f"{traffic[width].far_bytes / 1e6:.1f} MB from beyond the second-level cache and {times[width]:.0f} us "
            f"against {layer_by_layer.far_bytes / 1e6:.1f} MB and {layer_by_layer.microseconds(width):.0f} us"
        )
        transposed_inputs, transposed_outputs = cost.transposed
        return LayerGroupAttr(
            range(group.first, group.end),
            reason,
            DepthFirstOrderAttr(found.runs, found.order, found.slots),
            predicted=times,
            kilobytes={one: moved.far_bytes / 1e3 for one, moved in traffic.items()},
            transposed_inputs=transposed_inputs,
            transposed_outputs=transposed_outputs,
        )


def _write(tile: TileOp, written: _Written) -> None:
    """Write the schedule; threads share no tiles of such a network, whose layers are wide and rows many."""
    layers, prices = chain_of(tile.body.block), written.prices
    for layer in layers:
        layer.cut = None
    narrow = [width for width in tile.schedule.widths if width < written.start]
    serial_us = _predicted_times(layers, narrow) | {
        width: prices.microseconds(written.schedule.groups, width) for width in written.widths
    }
    widths = sorted({*narrow, *written.widths})
    if set(serial_us) == set(widths):
        used = widths_in_use(serial_us) | {written.schedule.width}
        widths = [width for width in widths if width in used]
        serial_us = {width: serial_us[width] for width in widths}
    tile.schedule = ScheduleAttr(widths, serial=serial_us)
    tile.depth_first = DepthFirstAttr(written.start, list(map(written.attribute, written.schedule.groups)))


def _predicted_times(layers: Sequence[LinearOp], widths: Iterable[int]) -> dict[int, float]:
    """Return the times of tiles that run layer by layer, where they are predicted."""
    predicted = [dict[int, float]() if layer.kernel is None else layer.kernel.predicted for layer in layers]
    known = (width for width in widths if all(width in times for times in predicted))
    return {width: sum(times[width] for times in predicted) + transpose_us(_features(layers), width) for width in known}


@dataclass(frozen=True)
class _Groups:
    """The search for groups of layers whose depth-first order has at most some slots."""

    costs: ScheduleCosts
    slots: int

    def find(self) -> list[Group]:
        """Return groups of two or more layers, each as long as it fits."""
        groups: list[Group] = []
        start = failures = 0
        while start < len(self.costs.layers) - 1 and failures < MOST_FAILURES:
            found = self._longest(start)
            if found is None:
                failures, start = failures + 1, start + 2
                continue
            groups.append(found)
            failures, start = 0, found.end
        return groups

    def _longest(self, start: int) -> Group | None:
        """Return the longest group from a layer on: all that are left if they fit, else as halving finds it."""
        count = len(self.costs.layers)
        best, limit = self._tried(start, start + 2), count + 1
        end = limit - 1
        while best is not None and best.end < limit - 1:
            found = self._tried(start, end)
            if found is None:
                limit = end
            else:
                best = found
            end = (best.end + limit) // 2
        return best

    def _tried(self, start: int, end: int) -> Group | None:
        group = Group(start, end, BLOCK)
        connected = any(len(layer.indices) for layer in self.costs.layers[start:end])  # not biases alone
        return group if connected and self.costs.slots(group) <= self.slots else None
