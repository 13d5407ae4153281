"""Simulated annealing of the positions of a group's neurons: two swap, and only their cells are counted anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern, Indices
from ..annealing.annealing import AnnealingPlan, AnnealingResult
from ..annealing.compiled_states import anneal_blocks
from ..compiled import compiled
from .views import MOST_CELLS, View, cells, levels, view_cost

HOTTEST: Final = 0.3
COLDEST: Final = 0.03
"""Temperatures in the highest price of a view."""

CONNECTIONS_A_SECOND: Final = 1e8
"""Connections moved in a second of a budget, about. A clock would give another order each time."""

BLOCK: Final = 1024
"""Proposals at one temperature."""


class RowTable(NamedTuple):
    """Rows: for each the view that owns it, its first cell, and the first level of its panel or -1."""

    owner: Indices
    cell: Indices
    level: Indices


class ViewTable(NamedTuple):
    """Views: for each the start of the group, the size of a block, and prices [views, counts]."""

    start: Indices
    block: Indices
    prices: Indices


class Counts(NamedTuple):
    """The connections in each cell, and the rows that reach each level."""

    cells: Indices
    levels: Indices


class Tables(NamedTuple):
    """Arrays of the compiled loops: `readers` are the rows of all views that read each neuron of the group."""

    readers: CsrPattern
    rows: RowTable
    views: ViewTable
    counts: Counts


class PositionState:
    """The order of a group's neurons while it is annealed, and the best one so far."""

    def __init__(self, views: Sequence[View], size: int) -> None:
        """Start from the neurons as they stand; views that are too large are left out."""
        self._views = [view for view in views if view.cell_count <= MOST_CELLS and len(view.rows.indices)]
        self._order = np.arange(size)
        self._tables = _tables(self._views, self._order)
        self._best = self._order.copy()
        self._cost = self._best_cost = sum(view_cost(view, self._order) for view in self._views)

    @property
    def cost(self) -> int:
        """The price of the current order."""
        return self._cost

    @property
    def best_cost(self) -> int:
        """The price of the best order."""
        return self._best_cost

    @property
    def connection_count(self) -> int:
        return len(self._tables.readers.indices)

    @property
    def unit(self) -> int:
        """The highest price of a view."""
        return max((view.price for view in self._views), default=1)

    def run(self, draws: NDArray[np.float64], temperature: float) -> None:
        """Make one proposal for each row of draws [proposals, DRAWS]; the last order may be the best one so far."""
        self._cost += int(_propose(draws, temperature, self._order, self._tables))
        if self._cost < self._best_cost:
            self._best[:], self._best_cost = self._order, self._cost

    def best(self) -> Indices:
        """Return the positions of the best order, [neurons of the group]."""
        return _positions(self._best)

    def go_back(self) -> None:
        """Continue from the best order."""
        self._order[:] = self._best
        self._tables = self._tables._replace(counts=_counts(self._views, _positions(self._order)))
        self._cost = self._best_cost


def anneal_positions(
    views: Sequence[View], size: int, seconds: float, rng: np.random.Generator
) -> AnnealingResult[Indices]:
    """Return the best positions of a group's neurons, what they cost, and the trace.

    The same seed gives the same positions: `seconds` is a number of proposals that take about as long.
    """
    state = PositionState(views, size)
    moved = 4 * state.connection_count / max(1, size) + 20
    proposals = int(seconds * CONNECTIONS_A_SECOND / moved)
    if proposals < 1 or size < 2 or state.connection_count == 0:
        return AnnealingResult(state.best(), state.best_cost, ())
    plan = AnnealingPlan(HOTTEST * state.unit, COLDEST * state.unit, proposals, block=BLOCK)
    return anneal_blocks(state, plan, rng)


def _positions(order: Indices) -> Indices:
    positions = np.empty(len(order), dtype=np.int64)
    positions[order] = np.arange(len(order))
    return positions


def _tables(views: Sequence[View], positions: Indices) -> Tables:
    size = len(positions)
    row_count = np.array([view.rows.row_count for view in views], dtype=np.int64)
    first_row = np.cumsum(row_count) - row_count
    members = [view.rows.indices for view in views]
    rows = [
        first + np.repeat(np.arange(view.rows.row_count), np.diff(view.rows.pointers))
        for first, view in zip(first_row.tolist(), views, strict=True)
    ]
    member = np.concatenate([np.zeros(0, dtype=np.int64), *members])
    order = np.argsort(member, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(member, minlength=size))).astype(np.int64)
    cell, level = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    cell_end, level_end = 0, 0
    for view in views:
        cell.append(cell_end + view.block_count * np.arange(view.rows.row_count))
        cell_end += view.block_count * view.rows.row_count
        if view.shares_visits:
            level.append(level_end + view.panels * view.block_count * (view.block + 1))
            level_end += (int(view.panels.max()) + 1) * view.block_count * (view.block + 1)
        else:
            level.append(np.full(view.rows.row_count, -1))
    tables = [view.table() for view in views]
    prices = np.zeros((len(views), max((len(table) for table in tables), default=1)), dtype=np.int64)
    for number, table in enumerate(tables):
        prices[number, : len(table)] = table
    return Tables(
        CsrPattern(starts, np.concatenate([np.zeros(0, dtype=np.int64), *rows])[order], int(row_count.sum())),
        RowTable(np.repeat(np.arange(len(views)), row_count), np.concatenate(cell), np.concatenate(level)),
        ViewTable(
            np.array([view.start for view in views], dtype=np.int64),
            np.array([view.block for view in views], dtype=np.int64),
            prices,
        ),
        _counts(views, positions),
    )


def _counts(views: Sequence[View], positions: Indices) -> Counts:
    counts = [cells(view, positions) for view in views]
    raised = [levels(view, count).ravel() for view, count in zip(views, counts, strict=True) if view.shares_visits]
    none = np.zeros(0, dtype=np.int64)
    return Counts(np.concatenate([none, *(count.ravel() for count in counts)]), np.concatenate([none, *raised]))


@compiled
def _propose(draws: NDArray[np.float64], temperature: float, order: Indices, tables: Tables) -> int:
    """Swap two neurons for each row of draws, at all distances alike, or leave them; return the change of the price."""
    size, total = len(order), 0
    for draw in draws:
        one = int(draw[0] * size)
        distance = int(size ** draw[1])
        other = (one + (distance if draw[2] < 0.5 else size - distance)) % size
        change = _move(order[one], one, other, tables) + _move(order[other], other, one, tables)
        if change > 0 and draw[3] >= np.exp(-change / temperature):
            _move(order[one], other, one, tables)
            _move(order[other], one, other, tables)
            continue
        order[one], order[other] = order[other], order[one]
        total += change
    return total


@compiled
def _move(neuron: int, start: int, end: int, tables: Tables) -> int:
    """Move the connections of a neuron from one place to another; return the change of the price."""
    readers, rows, views, counts = tables.readers, tables.rows, tables.views, tables.counts
    change = 0
    for entry in range(readers.pointers[neuron], readers.pointers[neuron + 1]):
        row = readers.indices[entry]
        view = rows.owner[row]
        block = views.block[view]
        before, after = (views.start[view] + start) // block, (views.start[view] + end) // block
        if before == after:
            continue
        cell = rows.cell[row]
        fewer, more = counts.cells[cell + before] - 1, counts.cells[cell + after] + 1
        counts.cells[cell + before], counts.cells[cell + after] = fewer, more
        level = rows.level[row]
        prices = views.prices[view]
        if level < 0:
            change += int(prices[fewer] - prices[fewer + 1] + prices[more] - prices[more - 1])
            continue
        left, reached = level + before * (block + 1) + fewer + 1, level + after * (block + 1) + more
        counts.levels[left] -= 1
        counts.levels[reached] += 1
        left_rows, reached_rows = counts.levels[left], counts.levels[reached]
        change += int(prices[left_rows] - prices[left_rows + 1] + prices[reached_rows] - prices[reached_rows - 1])
    return change
