"""Simulated annealing of compiled states, which run a block of proposals at a time; the plan is that of the theory."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .annealing import DRAWS, AnnealingPlan, AnnealingResult, TracePoint

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")


class BlockState(Protocol[_T_co]):
    """A state to anneal; it keeps the best solution that it met since it began."""

    @property
    def cost(self) -> int:
        """Transfers of the current solution."""
        ...

    @property
    def best_cost(self) -> int:
        """Transfers of the best solution."""
        ...

    def run(self, draws: NDArray[np.float64], temperature: float) -> None:
        """Make one proposal for each row of draws [proposals, DRAWS], each from 0 to 1."""
        ...

    def best(self) -> _T_co:
        """The best solution as a value."""
        ...

    def go_back(self) -> None:
        """Continue from the best solution."""
        ...


class _Fall(NamedTuple):
    """One fall of the temperature: which restart, and the share of the proposals that this state makes."""

    number: int
    plan: AnnealingPlan


def anneal_blocks(state: BlockState[_T], plan: AnnealingPlan, rng: np.random.Generator) -> AnnealingResult[_T]:
    """Anneal as `theory.annealing.anneal` does, to the same result for the same draws."""
    trace = [TracePoint(0, plan.hottest, state.cost, state.best_cost)]
    for number in range(plan.restarts):
        if number > 0:
            state.go_back()
        trace += _cool(state, _Fall(number, plan), rng)
    return AnnealingResult(state.best(), state.best_cost, tuple(trace))


def _cool(state: BlockState[object], fall: _Fall, rng: np.random.Generator) -> list[TracePoint]:
    number, plan = fall
    trace: list[TracePoint] = []
    first, end = (plan.proposals * turn // plan.restarts for turn in (number, number + 1))
    done = first
    while done < end:
        elapsed = plan.restarts * plan.elapsed() - number if plan.elapsed else 0.0
        if elapsed >= 1:
            break
        share = max(elapsed, (done - first) / (end - first))
        temperature = plan.hottest * (plan.coldest / plan.hottest) ** share
        size = min(plan.block, end - done)
        state.run(rng.random((size, DRAWS)), temperature)
        done += size
        trace.append(TracePoint(done, temperature, state.cost, state.best_cost))
    return trace
