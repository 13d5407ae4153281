"""Schedules of layers that searches found: kept, and tried first on chains that are alike.

A schedule speaks of layers, sizes of blocks and widths of tiles, so it may suit other weights and other sizes. Chains
of as many layers are points in a space of their sizes, densities, spreads of counts, and of how far apart the inputs of
an output stand; the schedules of the nearest ones are priced before a search.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import dist, isfinite, log
from operator import index
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from typing_extensions import override

from ..kernels.machine import Machine
from ..passes.tiles.schedule_network import ScheduleNetwork
from ..runtime.store.json_cache import Json, recall_list, remember
from ..sparse.csr import CsrPattern
from ..theory.annealing.annealing import seconds_left
from ..theory.depth_first.annealing import BLOCKS, LEVELS, Prices, Schedule, is_possible
from ..theory.depth_first.traffic import Group, ScheduleCosts

FILES: Final = "schedules-"
"""Names of files with schedules begin so."""

NEAREST: Final = 3
MOST_KEPT: Final = 64
"""Schedules that are kept, the latest ones."""

Point = tuple[float, ...]


class KnownSchedule(NamedTuple):
    """A schedule that a search of some seconds found: the place of its chain, and its time over that of the start."""

    place: Point
    schedule: Schedule
    ratio: float
    seconds: float


@dataclass(frozen=True)
class ScheduleAsBefore(ScheduleNetwork):
    """Schedule by a search that begins with what searches found before, and keep what it finds."""

    name = "pebble-schedule-network"

    folder: Path = field(kw_only=True)
    """The folder of the user's cache."""

    @staticmethod
    def kept_in(folder: Path, machine: Machine, seconds: float) -> "ScheduleAsBefore":
        """Return the pass for a machine."""
        return ScheduleAsBefore(machine.l1_bytes, machine.l2_bytes, seconds, folder=folder)

    @override
    def annealed(self, prices: Prices, start: Schedule) -> tuple[Schedule, str]:
        file = f"{FILES}{self.l1_bytes:08x}{self.l2_bytes:08x}"
        kept = kept_schedules(self.folder, file)
        place, before = place_of(prices.costs.layers), prices.row_us(start)
        best, seconds = start, self.seconds
        for known in _nearest(kept, place, self.seconds):
            schedule = _fitting(known.schedule, prices.costs)
            if schedule is None or not prices.row_us(schedule) < prices.row_us(best):
                continue
            best = schedule
            seconds = min(seconds, seconds_left(1 - prices.row_us(best) / before, 1 - known.ratio, self.seconds))
        found, trace = ScheduleNetwork.annealed(self.searching(seconds), prices, best)
        ratio = prices.row_us(found) / before
        if found != start:
            _keep(self.folder, file, [KnownSchedule(place, found, ratio, self.seconds), *kept])
        return found, trace if best is start else f"from one found before, {1 / ratio:.3g}x the start: {trace}"

    def searching(self, seconds: float) -> ScheduleNetwork:
        """Return the search alone, over some seconds."""
        return ScheduleNetwork(self.l1_bytes, self.l2_bytes, seconds, self.seed)


def place_of(layers: Sequence[CsrPattern]) -> Point:
    """Return the place of a chain: a factor of e in sizes and densities is a distance of 1 for each layer."""
    return tuple(number for layer in layers for number in _layer_place(layer))


def _layer_place(layer: CsrPattern) -> Point:
    inputs, outputs, connections = layer.column_count, layer.row_count, len(layer.indices)
    filled = np.flatnonzero(layer.lengths)
    firsts, lasts = layer.indices[layer.pointers[filled]], layer.indices[layer.pointers[filled + 1] - 1]
    reach = float(np.abs(lasts - firsts).mean()) / max(1, inputs) if len(filled) else 0.0
    mean = max(1.0, connections / max(1, outputs))
    spread = float(layer.lengths.std()) / mean if outputs else 0.0
    return log(max(1, inputs)), log(max(1, outputs)), log(mean), spread, reach


def _nearest(kept: Sequence[KnownSchedule], place: Point, seconds: float) -> list[KnownSchedule]:
    """Return the schedules of the nearest chains of as many layers that were searched as long, the nearest last."""
    alike = [known for known in kept if len(known.place) == len(place) and known.seconds >= seconds]
    return sorted(alike, key=lambda known: dist(known.place, place))[:NEAREST][::-1]


def _fitting(schedule: Schedule, costs: ScheduleCosts) -> Schedule | None:
    """Return a schedule as it is possible for a chain of as many layers; None where it is not."""
    groups = schedule.groups
    if schedule.width not in costs.widths or not is_possible(groups, len(costs.layers)):
        return None
    if any(not BLOCKS[0] <= group.block <= BLOCKS[1] for group in groups):
        return None
    if any(group.levels not in LEVELS for group in groups):
        return None
    # an order of blocks is one of a network that has as many
    fitted = tuple(
        group if sorted(group.blocks) == list(range(costs.block_count(group))) else group._replace(blocks=())
        for group in groups
    )
    return schedule._replace(groups=fitted)


def kept_schedules(folder: Path, file: str) -> list[KnownSchedule]:
    """Return the schedules of a file of the cache; what makes no sense is left out."""
    found = [_known(entry) for entry in recall_list(folder, file)]
    return [known for known in found if known is not None]


def _known(entry: Json) -> KnownSchedule | None:
    try:
        groups = tuple(
            Group(index(first), index(end), index(block), tuple(map(index, blocks)), index(levels))
            for first, end, block, blocks, levels in entry["groups"]
        )
        place = tuple(float(number) for number in entry["place"])
        ratio, seconds = float(entry["ratio"]), float(entry["seconds"])
        return (
            KnownSchedule(place, Schedule(groups, index(entry["width"])), ratio, seconds)
            if all(map(isfinite, (*place, ratio, seconds)))
            else None
        )
    except (TypeError, ValueError, KeyError, OverflowError):
        return None


def _keep(folder: Path, file: str, kept: Sequence[KnownSchedule]) -> None:
    content = [
        {"groups": known.schedule.groups, "width": known.schedule.width}
        | {"place": known.place, "ratio": known.ratio, "seconds": known.seconds}
        for known in kept[:MOST_KEPT]
    ]
    remember(folder, file, content)
