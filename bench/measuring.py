"""Times of calls that can be compared: all engines in one process, in turn, again and again."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

Call = Callable[[], object]


@dataclass(frozen=True)
class Budget:
    """How long to measure: for some seconds, but at least some rounds and at most some others."""

    seconds: float = 1.0
    least_rounds: int = 7
    most_rounds: int = 2000


@dataclass(frozen=True)
class Timing:
    """Median and minimum of one engine's calls in microseconds, over `rounds` rounds."""

    median_us: float
    min_us: float
    rounds: int


def interleave(calls: Mapping[str, Call], budget: Budget) -> dict[str, Timing]:
    """Time `calls` in turn: every round runs each once, so that drifts of the machine's speed meet all alike.

    A call of a few microseconds is repeated inside a round, so that the clock's own time does not count.
    """
    repeats = {name: _repeats(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    rounds = 0
    while rounds < budget.least_rounds or (
        time.perf_counter() - start < budget.seconds and rounds < budget.most_rounds
    ):
        for name, call in calls.items():
            times[name].append(_time(call, repeats[name]))
        rounds += 1
    return {name: Timing(median(values) * 1e6, min(values) * 1e6, rounds) for name, values in times.items()}


def _repeats(call: Call) -> int:
    """Warm `call` up, and return how often it runs in about 100 microseconds."""
    call()
    once = _time(call, 2)
    return max(1, min(50, round(1e-4 / max(once, 1e-9))))


def _time(call: Call, repeats: int) -> float:
    """Return the seconds of one of `repeats` calls."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
