"""Simulated annealing of the schedule of a chain: groups of layers, their blocks, and the columns of a tile.

A proposal moves the border of a group, splits one or joins two, lets layers run one by one or depth first, takes blocks
twice or half as large, in another order or part by part, or another width of the tile. Its cost is the predicted time
of a row of the batch; only groups that were never seen are counted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Final, NamedTuple

import numpy as np

from ..annealing.annealing import AnnealingPlan, AnnealingResult, anneal
from .traffic import Group, ScheduleCosts

HOTTEST: Final = 0.03
COLDEST: Final = 0.001
"""Temperatures in the cost of the start."""

MOST_PROPOSALS: Final = 4000
"""Most proposals of a search: by then all that is near has been seen."""

BLOCKS: Final = (16, 4096)
"""The least and the most outputs of a block."""

LEVELS: Final = (0, 2, 3, 4, 5)
"""Levels of a block that run part by part."""

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
    """The cost of schedules of a chain.

    `transpose_us` tells what so many features take to be transposed into columns, or back, in tiles of a width: where
    rows come in before a group, or leave behind one, that does not transpose them itself.
    """

    costs: ScheduleCosts
    transpose_us: Callable[[int, int], float]
    most_slots: int

    def microseconds(self, groups: tuple[Group, ...], width: int) -> float:
        """Return the time of a tile; infinite where a group needs too many slots."""
        total, done = 0.0, 0
        for group in groups:
            total += self.together(group, width) + self.one_by_one(done, group.first, width)
            done = group.end
        return total + self.one_by_one(done, len(self.costs.layers), width)

    def together(self, group: Group, width: int) -> float:
        """Return the time of a group."""
        cost = self.costs.group(group)
        if cost.slots > self.most_slots:
            return float("inf")
        comes_in, leaves = (
            group.first == 0 and not cost.transposed.inputs,
            group.end == self._count and not cost.transposed.outputs,
        )
        return cost.traffic[width].microseconds(width) + self._edge_us(comes_in, leaves, width)

    def one_by_one(self, first: int, end: int, width: int) -> float:
        """Return the time of layers that run one after the other."""
        if first == end:
            return 0.0
        edges = self._edge_us(first == 0, end == self._count, width)
        return self.costs.one_by_one(first, end)[width].microseconds(width) + edges

    def row_us(self, schedule: Schedule) -> float:
        """Return the microseconds of a row of the batch."""
        return self.microseconds(schedule.groups, schedule.width) / schedule.width

    @property
    def _count(self) -> int:
        return len(self.costs.layers)

    def _edge_us(self, comes_in: bool, leaves: bool, width: int) -> float:
        layers = self.costs.layers
        return self.transpose_us(comes_in * layers[0].column_count + leaves * layers[-1].row_count, width)


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
        given = _Choices(self._schedule, self._prices.costs)
        found = MOVES[int(kind * len(MOVES))](given, choices)
        if found is None or found == self._schedule or not is_possible(found.groups, given.layers):
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
        return self._schedule

    def _priced(self, schedule: Schedule) -> int | None:
        microseconds = self._prices.row_us(schedule)
        return None if isinf(microseconds) else round(1e6 * microseconds)


class _Choices(NamedTuple):
    """Choices of a move."""

    schedule: Schedule
    costs: ScheduleCosts

    @property
    def layers(self) -> int:
        return len(self.costs.layers)

    def with_groups(self, groups: tuple[Group, ...]) -> Schedule:
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
    moved[number] = _over(groups[number], groups[number].first, end)
    following = groups[number + 1 : number + 2]
    if following and (following[0].first == groups[number].end or following[0].first < end):
        moved[number + 1] = _over(following[0], end, following[0].end)
    return given.with_groups(tuple(moved))


def _joined(given: _Choices, draws: list[float]) -> Schedule | None:
    """Make one group of two, and of the layers between them."""
    groups = given.schedule.groups
    if len(groups) < 2:
        return None
    number = int(draws[0] * (len(groups) - 1))
    whole = _over(groups[number], groups[number].first, groups[number + 1].end)
    return given.with_groups((*groups[:number], whole, *groups[number + 2 :]))


def _toggled(given: _Choices, draws: list[float]) -> Schedule | None:
    """Run the layers of a group one by one, or two that do so depth first."""
    groups = given.schedule.groups
    first = int(draws[0] * given.layers)
    inside = [group for group in groups if group.first <= first < group.end]
    if inside:
        return given.with_groups(tuple(group for group in groups if group is not inside[0]))
    block = groups[0].block if groups else BLOCKS[0] << int(draws[1] * (BLOCKS[1] // BLOCKS[0]).bit_length())
    return given.with_groups(tuple(sorted((*groups, Group(first, first + DEPTH_FIRST, block)))))


def _widened(given: _Choices, draws: list[float]) -> Schedule | None:
    """Take another width."""
    widths = given.costs.widths
    return given.schedule._replace(width=widths[int(draws[0] * len(widths))])


GroupMove = Callable[[ScheduleCosts, Group, list[float]], Sequence[Group]]
"""Makes groups that take the place of one, of two draws in [0, 1); the group itself where there are no others."""


def _split(_: ScheduleCosts, group: Group, draws: list[float]) -> Sequence[Group]:
    middle = group.first + int(draws[0] * (group.end - group.first + 1))
    return _over(group, group.first, middle), _over(group, middle, group.end)


def _resized(_: ScheduleCosts, group: Group, draws: list[float]) -> Sequence[Group]:
    """Take blocks of a group twice or half as large."""
    block = group.block * 2 if draws[0] < 1 / 2 else group.block // 2
    return [group._replace(block=block, blocks=()) if BLOCKS[0] <= block <= BLOCKS[1] else group]


def _reordered(costs: ScheduleCosts, group: Group, draws: list[float]) -> Sequence[Group]:
    """Take the blocks between two places in reverse, or one of them elsewhere."""
    blocks = list(group.blocks or range(costs.block_count(group)))
    here, there = int(draws[0] * len(blocks)), int(draws[1] * len(blocks))
    if here > there:
        blocks[there : here + 1] = reversed(blocks[there : here + 1])
    else:
        blocks.insert(there, blocks.pop(here))
    return [group._replace(blocks=tuple(blocks))]


def _followed(costs: ScheduleCosts, group: Group, draws: list[float]) -> Sequence[Group]:
    """Take first a block of a group, then always the one that needs the fewest new values."""
    blocks = costs.nearest_next(group, int(draws[0] * costs.block_count(group)))
    return [group if blocks is None else group._replace(blocks=blocks)]


def _in_parts(_: ScheduleCosts, group: Group, draws: list[float]) -> Sequence[Group]:
    """Take other levels of a group part by part, or none."""
    return [group._replace(levels=LEVELS[int(draws[0] * len(LEVELS))])]


def _of_a_group(move: GroupMove) -> Move:
    def moved(given: _Choices, draws: list[float]) -> Schedule | None:
        groups = given.schedule.groups
        if not groups:
            return None
        number = int(draws[0] * len(groups))
        found = move(given.costs, groups[number], draws[1:])
        return given.with_groups((*groups[:number], *found, *groups[number + 1 :]))

    return moved


MOVES: Final[tuple[Move, ...]] = (
    *(_shifted, _shifted, _joined, _of_a_group(_split), _toggled),
    *map(_of_a_group, (_resized, _resized, _reordered, _followed, _in_parts)),
    _widened,
)


def _over(group: Group, first: int, end: int) -> Group:
    """Return a group over other layers, whose blocks are others."""
    return Group(first, end, group.block)


def is_possible(groups: tuple[Group, ...], layers: int) -> bool:
    """Return whether groups lie in a chain of so many layers in their order, each of two layers or more."""
    ends = [0, *(bound for group in groups for bound in (group.first, group.end)), layers]
    return ends == sorted(ends) and all(group.end - group.first >= DEPTH_FIRST for group in groups)
