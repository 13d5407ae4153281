"""Simulated annealing over any state that proposes moves and knows their exact cost.

A proposal is a row of uniform draws in [0, 1); all choices of a move are made from it. The rows are drawn in blocks, so
a compiled annealer that reads the same rows takes the same path. The theory reads no clock: time enters as `elapsed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

# Uniform draws of one proposal: four choices of the move, one of its acceptance.
DRAWS = 5
_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")

KNOWN_SHARE: Final = 0.01
"""Share of the time of a search that is spent where what another one found gains about as much as it did there."""

ABOUT_AS_MUCH: Final = 0.9
"""Least share of that gain."""


def seconds_left(gain: float, known: float, seconds: float) -> float:
    """Return the seconds of a search after a try of what gained the share `known` elsewhere, and gains `gain` here."""
    return KNOWN_SHARE * seconds if gain >= ABOUT_AS_MUCH * known else seconds


class AnnealingState(Protocol[_T_co]):
    """A state to anneal: it holds a current solution and applies moves to it."""

    @property
    def cost(self) -> int:
        """Transfers of the current solution."""
        ...

    def propose(self, draws: list[float]) -> int | None:
        """Apply the move that the draws choose and return the change of cost; None, unapplied, if it is not allowed."""
        ...

    def reject(self) -> None:
        """Take the last applied move back."""
        ...

    def snapshot(self) -> _T_co:
        """The current solution as a value."""
        ...


@dataclass(frozen=True)
class AnnealingPlan:
    """Length and temperatures, in transfers, which fall geometrically from `hottest` to `coldest` in each restart.

    `proposals` is the budget of all restarts together. `elapsed`, if given, returns the share of a time budget that is
    used up; then each restart cools by whichever of both budgets is further spent, and ends with it. A restart begins
    at the best solution so far. Temperature and time budget are looked at once in `block` proposals.

    Raises:
        ValueError: a temperature that is not positive, one that rises, or a budget, restarts or a block below 1.
    """

    hottest: float
    coldest: float
    proposals: int
    restarts: int = 1
    block: int = 256
    elapsed: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        """Check all fields."""
        if not 0 < self.coldest <= self.hottest:
            raise ValueError(f"temperatures fall from {self.hottest} to {self.coldest}, both must be positive")
        if min(self.proposals, self.restarts, self.block) < 1:
            budget = f"{self.proposals} proposals in {self.restarts} restarts by blocks of {self.block}"
            raise ValueError(f"expected 1 or more of each, got {budget}")


class TracePoint(NamedTuple):
    """Proposals so far, temperature, current and best cost in transfers."""

    proposals: int
    temperature: float
    cost: int
    best_cost: int


@dataclass(frozen=True)
class AnnealingResult(Generic[_T]):
    """The best solution met, its cost in transfers, and a point of the trace for each block of proposals."""

    best: _T
    cost: int
    trace: tuple[TracePoint, ...]


def anneal(
    start: Callable[[_T | None], AnnealingState[_T]], plan: AnnealingPlan, rng: np.random.Generator
) -> AnnealingResult[_T]:
    """Anneal; the result is never worse than the start.

    Args:
        start: makes the state of the start (None) or of a solution.
        plan: temperatures and budget.
        rng: source of randomness.
    """
    state = start(None)
    best = AnnealingResult(state.snapshot(), state.cost, (TracePoint(0, plan.hottest, state.cost, state.cost),))
    for restart in range(plan.restarts):
        state = start(best.best) if restart else state
        best = _cool(state, plan, _Round(restart, rng), best)
    return best


class _Round(NamedTuple):
    """Number and randomness of a restart."""

    number: int
    rng: np.random.Generator


def _cool(
    state: AnnealingState[_T], plan: AnnealingPlan, turn: _Round, before: AnnealingResult[_T]
) -> AnnealingResult[_T]:
    """One fall of the temperature."""
    best, cost, trace = before.best, before.cost, list(before.trace)
    first, end = (plan.proposals * number // plan.restarts for number in (turn.number, turn.number + 1))
    done = first
    while done < end:
        elapsed = plan.restarts * plan.elapsed() - turn.number if plan.elapsed else 0.0
        if elapsed >= 1:
            break
        share = max(elapsed, (done - first) / (end - first))
        temperature = plan.hottest * (plan.coldest / plan.hottest) ** share
        size = min(plan.block, end - done)
        draws: list[list[float]] = turn.rng.random((size, DRAWS)).tolist()
        best, cost = _run_block(state, draws, temperature, _Best(best, cost))
        done += size
        trace.append(TracePoint(done, temperature, state.cost, cost))
    return AnnealingResult(best, cost, tuple(trace))


class _Best(NamedTuple, Generic[_T]):
    """The best solution so far, and its cost."""

    solution: _T
    cost: int


def _run_block(state: AnnealingState[_T], draws: list[list[float]], temperature: float, best: _Best[_T]) -> _Best[_T]:
    """Make proposals at one temperature; return the best solution."""
    for row in draws:
        change = state.propose(row)
        if change is None:
            continue
        if change > 0 and row[-1] >= np.exp(-change / temperature):
            state.reject()
        elif state.cost < best.cost:
            best = _Best(state.snapshot(), state.cost)
    return best
