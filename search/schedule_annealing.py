"""Simulated annealing of the schedule of a chain: groups of layers, their blocks, and the columns of a tile.

A proposal moves the border of a group, splits one or joins two, lets layers run one by one or depth first, takes blocks
twice or half as large, or another width of the tile. Its cost is the predicted time of a row of the batch; only groups
that were never seen are counted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isinf
from typing import Final, NamedTuple

import numpy as np

from redpebble.search.schedule_costs import Group, ScheduleCosts
from redpebble.theory.annealing import AnnealingPlan, AnnealingResult, anneal

HOTTEST: Final = 0.03
COLDEST: Final = 0.001
"""Temperatures in the cost of the start."""

MOST_PROPOSALS: Final = 4000
"""In a search: by then all that is near has been seen."""

BLOCKS: Final = (16, 4096)
"""The least and the most outputs of a block."""

MOST_SHIFTED: Final = 4
"""Layers by which a border moves at once."""

DEPTH_FIRST: Final = 2
"""Layers from which on a group saves anything."""


class Schedule(NamedTuple):
    """Groups of layers that follow each other, and the width of the tiles in batch columns; other layers run alone."""

    groups: tuple[Group, ...]
    width: int


@dataclass(frozen=True)
class Prices:
    """The cost of schedules of a chain; `ends_us` is what rows take on their way in and out, by width."""

    costs: ScheduleCosts
    ends_us: Mapping[int, float]
    most_slots: int

    def microseconds(self, groups: tuple[Group, ...], width: int) -> float:
        """Return the time of a tile without the ends; infinite where a group needs too many slots."""
        total, done = 0.0, 0
        for group in groups:
            cost = self.costs.group(group)
            if cost.slots > self.most_slots:
                return float("inf")
            total += cost.traffic[width].microseconds(width) + self.one_by_one(done, group.first, width)
            done = group.end
        return total + self.one_by_one(done, len(self.costs.layers), width)

    def one_by_one(self, first: int, end: int, width: int) -> float:
        """Return the time of layers that run one after the other."""
        return self.costs.one_by_one(first, end)[width].microseconds(width) if first < end else 0.0

    def row_us(self, schedule: Schedule) -> float:
        """Return the microseconds of a row of the batch."""
        tile = self.microseconds(schedule.groups, schedule.width) + self.ends_us[schedule.width]
        return tile / schedule.width


def anneal_schedule(
    prices: Prices, start: Schedule, seconds: float, rng: np.random.Generator
) -> AnnealingResult[Schedule]:
    """Return the best schedule met, its cost in picoseconds a row, and a trace; never a worse one than the start.

    The same seconds give the same schedule: they buy counting that takes about so long, not time by a clock.
    """
    begun = prices.costs.counted_ns
    cost = 1e6 * prices.row_us(start)
    budget = 1e9 * seconds

    def elapsed() -> float:
        return (prices.costs.counted_ns - begun) / budget

    plan = AnnealingPlan(max(1.0, HOTTEST * cost), max(1.0, COLDEST * cost), MOST_PROPOSALS, block=4, elapsed=elapsed)
    return anneal(lambda best: _State(prices, start if best is None else best), plan, rng)


class _State:
    """A schedule while it is annealed."""

    def __init__(self, prices: Prices, schedule: Schedule) -> None:
        self._prices = prices
        self._schedule = self._before = schedule
        cost = self._priced(schedule)
        assert cost is not None
        self._cost = self._cost_before = cost

    @property
    def cost(self) -> int:
        """Picoseconds of a row."""
        return self._cost

    def propose(self, draws: list[float]) -> int | None:
        """Apply a move; None where it leads to no schedule, or to the same."""
        kind, *choices, _ = draws
        layers = len(self._prices.costs.layers)
        found = MOVES[int(kind * len(MOVES))](_Choices(self._schedule, layers, tuple(self._prices.ends_us)), choices)
        if found is None or found == self._schedule or not _is_valid(found.groups, layers):
            return None
        cost = self._priced(found)
        if cost is None:
            return None
        self._before, self._cost_before = self._schedule, self._cost
        self._schedule, self._cost = found, cost
        return self._cost - self._cost_before

    def reject(self) -> None:
        """Go back to the schedule before."""
        self._schedule, self._cost = self._before, self._cost_before

    def snapshot(self) -> Schedule:
        """Return the schedule."""
        return self._schedule

    def _priced(self, schedule: Schedule) -> int | None:
        microseconds = self._prices.row_us(schedule)
        return None if isinf(microseconds) else round(1e6 * microseconds)


class _Choices(NamedTuple):
    """What a move chooses from."""

    schedule: Schedule
    layers: int
    widths: tuple[int, ...]

    def with_groups(self, groups: tuple[Group, ...]) -> Schedule:
        """Return the schedule with other groups."""
        return self.schedule._replace(groups=groups)


Move = Callable[[_Choices, list[float]], Schedule | None]
"""Makes another schedule of three draws in [0, 1); None where there is none."""


def _shifted(given: _Choices, draws: list[float]) -> Schedule | None:
    """Move the end of a group; one that follows closely begins there."""
    groups = given.schedule.groups
    if not groups:
        return None
    number = int(draws[0] * len(groups))
    distance = 1 + int(draws[1] * MOST_SHIFTED)
    end = groups[number].end + (distance if draws[2] < 1 / 2 else -distance)
    moved = [*groups]
    moved[number] = groups[number]._replace(end=end)
    following = groups[number + 1 : number + 2]
    if following and (following[0].first == groups[number].end or following[0].first < end):
        moved[number + 1] = following[0]._replace(first=end)
    return given.with_groups(tuple(moved))


def _joined(given: _Choices, draws: list[float]) -> Schedule | None:
    """Make one group of two, and of the layers between them."""
    groups = given.schedule.groups
    if len(groups) < 2:
        return None
    number = int(draws[0] * (len(groups) - 1))
    whole = groups[number]._replace(end=groups[number + 1].end)
    return given.with_groups((*groups[:number], whole, *groups[number + 2 :]))


def _split(given: _Choices, draws: list[float]) -> Schedule | None:
    """Make two groups of one."""
    groups = given.schedule.groups
    if not groups:
        return None
    number = int(draws[0] * len(groups))
    group = groups[number]
    middle = group.first + int(draws[1] * (group.end - group.first + 1))
    parts = (group._replace(end=middle), group._replace(first=middle))
    return given.with_groups((*groups[:number], *parts, *groups[number + 1 :]))


def _toggled(given: _Choices, draws: list[float]) -> Schedule | None:
    """Run the layers of a group one by one, or two that do so depth first."""
    groups = given.schedule.groups
    first = int(draws[0] * given.layers)
    inside = [group for group in groups if group.first <= first < group.end]
    if inside:
        return given.with_groups(tuple(group for group in groups if group is not inside[0]))
    block = groups[0].block if groups else BLOCKS[0] << int(draws[1] * (BLOCKS[1] // BLOCKS[0]).bit_length())
    return given.with_groups(tuple(sorted((*groups, Group(first, first + DEPTH_FIRST, block)))))


def _resized(given: _Choices, draws: list[float]) -> Schedule | None:
    """Take blocks of a group twice or half as large."""
    groups = given.schedule.groups
    if not groups:
        return None
    number = int(draws[0] * len(groups))
    block = groups[number].block * 2 if draws[1] < 1 / 2 else groups[number].block // 2
    if not BLOCKS[0] <= block <= BLOCKS[1]:
        return None
    return given.with_groups((*groups[:number], groups[number]._replace(block=block), *groups[number + 1 :]))


def _widened(given: _Choices, draws: list[float]) -> Schedule | None:
    """Take another width."""
    return given.schedule._replace(width=given.widths[int(draws[0] * len(given.widths))])


MOVES: Final[tuple[Move, ...]] = (_shifted, _shifted, _joined, _split, _toggled, _resized, _resized, _widened)


def _is_valid(groups: tuple[Group, ...], layers: int) -> bool:
    ends = [0, *(place for group in groups for place in (group.first, group.end)), layers]
    return ends == sorted(ends) and all(group.end - group.first >= DEPTH_FIRST for group in groups)
