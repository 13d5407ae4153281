"""The annealing loop: budgets, cooling, trace, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redpebble.theory.annealing.annealing import AnnealingPlan, AnnealingResult, anneal


class Walk:
    """A walk on the integers whose cost is the distance to 7."""

    def __init__(self, start: int) -> None:
        self._place = self._before = start

    @property
    def cost(self) -> int:
        return abs(self._place - 7)

    def propose(self, draws: list[float]) -> int | None:
        if draws[0] < 0.1:
            return None
        self._before = self._place
        cost = self.cost
        self._place += 1 if draws[1] < 0.5 else -1
        return self.cost - cost

    def reject(self) -> None:
        self._place = self._before

    def snapshot(self) -> int:
        return self._place


def walk(plan: AnnealingPlan, seed: int = 0) -> AnnealingResult[int]:
    return anneal(lambda place: Walk(-20 if place is None else place), plan, np.random.default_rng(seed))


@given(st.integers(1, 2000), st.integers(1, 5), st.integers(0, 99))
def test_the_best_is_reported_with_its_cost_and_never_rises(proposals: int, restarts: int, seed: int) -> None:
    result = walk(AnnealingPlan(2.0, 0.1, proposals, restarts), seed)
    bests = [point.best_cost for point in result.trace]
    assert result.cost == abs(result.best - 7) == bests[-1] <= 27
    assert bests == sorted(bests, reverse=True)
    assert result.trace[-1].proposals == proposals


def test_the_temperature_falls_in_each_restart() -> None:
    points = walk(AnnealingPlan(4.0, 1.0, 2560, restarts=2)).trace[1:]
    halves = points[:5], points[5:]
    assert [point.proposals for point in points] == list(range(256, 2561, 256))
    for half in halves:
        temperatures = [point.temperature for point in half]
        assert temperatures[0] == 4.0
        assert temperatures == sorted(temperatures, reverse=True)
        assert temperatures[-1] >= 1.0


def test_equal_seeds_anneal_equally() -> None:
    plan = AnnealingPlan(4.0, 0.1, 1000)
    assert walk(plan, 3) == walk(plan, 3)


def test_a_spent_time_budget_ends_the_search() -> None:
    shares: Iterator[float] = iter([0.0, 0.25, 0.5, 0.75, 1.0])
    result = walk(AnnealingPlan(4.0, 1.0, 10**9, restarts=2, elapsed=lambda: next(shares, 1.0)))
    assert [round(point.temperature, 3) for point in result.trace[1:]] == [4.0, 2.0, 2.0]
    assert len(result.trace) == 1 + 3


@pytest.mark.parametrize(
    "fields, message",
    [
        ((1.0, 0.0, 10), "temperatures fall from 1.0 to 0.0, both must be positive"),
        ((1.0, 2.0, 10), "temperatures fall from 1.0 to 2.0, both must be positive"),
        ((1.0, 0.5, 0), "expected 1 or more of each, got 0 proposals in 1 restarts by blocks of 256"),
        ((1.0, 0.5, 5, 0), "expected 1 or more of each, got 5 proposals in 0 restarts by blocks of 256"),
    ],
)
def test_an_impossible_plan_is_refused(fields: tuple[float, float, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AnnealingPlan(*fields)
