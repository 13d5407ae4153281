"""Times of calls that can be compared: all engines in one process, in turn, again and again.

An engine's turn is a burst: one call that is not timed, so that caches hold what the calls in a loop would find there
and sleeping threads are awake, then as many timed calls as make about 100 microseconds.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

Call = Callable[[], object]
Key = TypeVar("Key", bound=Hashable)

BURST_SECONDS: Final = 1e-4
LONG_SECONDS: Final = 5e-3
"""Calls that take longer fill the caches themselves."""

MOST_REPEATS: Final = 50

NO_SETTLING: Final[Mapping[Any, float]] = MappingProxyType({})


@dataclass(frozen=True)
class Budget:
    """The length of a measurement in seconds, between a least and a greatest number of rounds."""

    seconds: float = 1.0
    least_rounds: int = 7
    most_rounds: int = 2000
    clock: Callable[[], float] = time.perf_counter
    """A clock in seconds; `time.thread_time` leaves out what other programs take, and counts one thread only."""

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < float("inf"):
            raise ValueError(f"expected 0 seconds or more to measure, got {self.seconds}")


@dataclass(frozen=True)
class Timing:
    """Median and minimum of one engine's calls in microseconds, over `rounds` rounds."""

    median_us: float
    min_us: float
    rounds: int

    def divided(self, count: float) -> "Timing":
        """Return the timing of one of `count` equal parts of the call."""
        return Timing(self.median_us / count, self.min_us / count, self.rounds)


class _Burst(NamedTuple):
    """A call, and how it is timed."""

    call: Call
    repeats: int
    warm: bool
    clock: Callable[[], float]

    def seconds(self) -> float:
        if self.warm:
            self.call()
        start = self.clock()
        for _ in range(self.repeats):
            self.call()
        return (self.clock() - start) / self.repeats


def interleave(
    calls: Mapping[Key, Call], budget: Budget, settle_seconds: Mapping[Key, float] = NO_SETTLING
) -> dict[Key, Timing]:
    """Time `calls` in turn: every round runs each once, so that drifts of the machine's speed meet all alike.

    After an engine's turn `settle_seconds` pass until the next one's, in which its threads cease to spin.
    """
    bursts = {name: _burst(call, budget.clock) for name, call in calls.items()}
    times: dict[Key, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    rounds = 0
    while rounds < budget.least_rounds or (
        time.perf_counter() - start < budget.seconds and rounds < budget.most_rounds
    ):
        for name, burst in bursts.items():
            times[name].append(burst.seconds())
            if settle_seconds.get(name):
                time.sleep(settle_seconds[name])
        rounds += 1
    return {name: Timing(median(values) * 1e6, min(values) * 1e6, rounds) for name, values in times.items()}


def _burst(call: Call, clock: Callable[[], float]) -> _Burst:
    """Return how to time `call`, which this runs a few times: the first one may prepare what later ones reuse."""
    call()
    once = _Burst(call, 1, warm=False, clock=clock).seconds()
    repeats = max(1, min(MOST_REPEATS, round(BURST_SECONDS / max(once, 1e-9))))
    return _Burst(call, repeats, once < LONG_SECONDS, clock)
