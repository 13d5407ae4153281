"""Times of groups of layers that run depth first: measured as they are, without the layers around them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ..dialect.ops.tile import TileOp, chain_in
from ..dialect.ops.tile_depth_first import DepthFirstAttr
from ..dialect.tensors import shape_of
from ..lowering.cpu_target import CpuTarget
from ..lowering.neurons.neuron_stream import pack_neurons
from ..lowering.tiles.depth_first_groups import LayerGroup, groups_at
from ..lowering.tiles.timed_groups import group_kernels, group_symbol
from ..runtime.jit import emit_object, load_object
from ..runtime.memory import address_of, aligned_copy, pointer_table
from .measure_kernels import Tuning

ROUNDS: Final = 5
"""Calls at each width, after one that counts for nothing."""


@dataclass(frozen=True)
class MeasureGroups(ModulePass):
    """Write on groups of layers that run depth first how long they take on this machine."""

    name = "pebble-measure-groups"

    tuning: Tuning

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        measure_groups(op, self.tuning.target)


def measure_groups(module: ModuleOp, target: CpuTarget) -> None:
    """Write into the groups of a module how long they take on this machine, which can run code for `target`.

    Those of layers on codes have no code that runs by itself.
    """
    for tile in [op for op in module.walk() if isinstance(op, TileOp) and chain_in(op) is None]:
        schedule = tile.depth_first
        if schedule is None:
            continue
        widths = [width for width in tile.schedule.widths if width >= schedule.width]
        groups = {group.first: group for group in groups_at(tile, widths[-1]).values()}
        measured = [_measured(group, widths, target) for group in groups.values()]
        tile.depth_first = DepthFirstAttr(
            schedule.width,
            [replace(group, measured=times) for group, times in zip(schedule.groups, measured, strict=True)],
        )


def _measured(group: LayerGroup, widths: Sequence[int], target: CpuTarget) -> dict[int, float]:
    """Return the least microseconds of a group by width."""
    symbols = {width: group_symbol(width) for width in widths}
    image = emit_object(group_kernels(group, widths, target), target)
    code = load_object(image, dict.fromkeys(symbols.values(), (3, 1)))
    stream = aligned_copy(pack_neurons(group.graph(), group.neuron_order, group.transposed))
    ends = (shape_of(group.first.weight)[0], shape_of(group.last.weight)[1])
    slots, times = group.neuron_order.slot_count, dict[int, float]()
    for width, symbol in symbols.items():
        buffers = [aligned_copy(np.ones(rows * width, np.float32)) for rows in (*ends, slots + 1)]
        table = pointer_table(buffers[:2])
        arguments = (address_of(stream), address_of(buffers[2]), address_of(table), width)
        times[width] = min(_microseconds(code.functions[symbol], arguments) for _ in range(ROUNDS + 1))
    return times


def _microseconds(function: Callable[..., object], arguments: tuple[int, ...]) -> float:
    start = time.perf_counter()
    function(*arguments)
    return 1e6 * (time.perf_counter() - start)
