"""Times of calls that can be compared: all engines in one process, in turn, again and again.

An engine's turn is a burst: one call that is not timed, so that caches hold what the calls in a loop would find there
and sleeping threads are awake, then as many timed calls as make about 100 microseconds.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from threading import Barrier
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

Call = Callable[[], object]


@runtime_checkable
class TimesItself(Protocol):
    """A call that knows how long it takes, such as one that runs in another process."""

    def seconds(self, repeats: int) -> list[float]:
        """Return the seconds of each of `repeats` calls, after one that is not timed."""
        ...


Key = TypeVar("Key", bound=Hashable)

BURST_SECONDS: Final = 1e-4
LONG_SECONDS: Final = 5e-3
"""Calls that take longer fill the caches themselves."""

MOST_REPEATS: Final = 50

SINGLE_SECONDS: Final = 5e-6
"""Calls that take longer are timed one by one as well, to which the clock adds a fiftieth; shorter ones as bursts."""

TURNS: Final = 5
TURN_SECONDS: Final = 0.01
"""Turns of callers at once, and the least time of each."""

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
    """Median and minimum of one engine's calls in microseconds, over `rounds` rounds.

    `p99_us` is what 99 of 100 calls do not exceed, the slowest of fewer; `calls` are those that were timed.
    """

    median_us: float
    min_us: float
    rounds: int
    p99_us: float = 0.0
    calls: int = 0

    def divided(self, count: float) -> "Timing":
        """Return the timing of one of `count` equal parts of the call."""
        return Timing(self.median_us / count, self.min_us / count, self.rounds, self.p99_us / count, self.calls)


class _Burst(NamedTuple):
    """A call, and how it is timed."""

    call: Call
    repeats: int
    warm: bool
    clock: Callable[[], float]
    singly: bool = False
    """Whether each call is timed, or all at once."""

    def seconds(self) -> list[float]:
        """Return the seconds of each call, or the mean of calls that are too short to be timed one by one."""
        if isinstance(self.call, TimesItself):
            return self.call.seconds(self.repeats)
        if self.warm:
            self.call()
        if not self.singly:
            start = self.clock()
            for _ in range(self.repeats):
                self.call()
            return [(self.clock() - start) / self.repeats]
        marks = [self.clock()]
        for _ in range(self.repeats):
            self.call()
            marks.append(self.clock())
        return [after - before for before, after in pairwise(marks)]


def interleave(
    calls: Mapping[Key, Call], budget: Budget, settle_seconds: Mapping[Key, float] = NO_SETTLING
) -> dict[Key, Timing]:
    """Time `calls` in turn: every round runs each once, so that drifts of the machine's speed meet all alike.

    After an engine's turn `settle_seconds` pass until the next one's, in which its threads cease to spin.
    """
    bursts = {name: _burst(call, budget.clock) for name, call in calls.items()}
    times: dict[Key, list[float]] = {name: [] for name in calls}
    means: dict[Key, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    rounds = 0
    while rounds < budget.least_rounds or (
        time.perf_counter() - start < budget.seconds and rounds < budget.most_rounds
    ):
        for name, burst in bursts.items():
            found = burst.seconds()
            times[name] += found
            means[name].append(sum(found) / len(found))
            if settle_seconds.get(name):
                time.sleep(settle_seconds[name])
        rounds += 1
    return {name: _timing(means[name], values) for name, values in times.items()}


def _timing(means: Sequence[float], times: Sequence[float]) -> Timing:
    """Return the timing of rounds with such mean times of a call, and of all calls."""
    slowest = sorted(times)[min(len(times) - 1, (99 * len(times)) // 100)]
    # the time of a thread stands still in a round that the system takes to be all another program's
    least = min([mean for mean in means if mean > 0] or means)
    return Timing(median(means) * 1e6, least * 1e6, len(means), slowest * 1e6, len(times))


def throughputs(calls: Mapping[Key, Call], callers: int, seconds: float) -> dict[Key, float]:
    """Return the calls a second of each engine while so many threads of Python call it again and again.

    Engines run in turn, for `seconds` in all or a little more; a rate is the median of the turns.
    """
    turn = max(TURN_SECONDS, seconds / (TURNS * max(1, len(calls))))
    rates: dict[Key, list[float]] = {name: [] for name in calls}
    with ThreadPoolExecutor(callers) as pool:
        for _ in range(TURNS):
            for name, call in calls.items():
                start = Barrier(callers)
                each = [pool.submit(_calls_a_second, call, start, turn) for _ in range(callers)]
                rates[name].append(sum(one.result() for one in each))
    return {name: median(found) for name, found in rates.items()}


def _calls_a_second(call: Call, start: Barrier, seconds: float) -> float:
    """Return the rate of one caller, which begins with the others."""
    start.wait()
    begun = now = time.perf_counter()
    count = 0
    while now - begun < seconds:
        call()
        count += 1
        now = time.perf_counter()
    return count / (now - begun)


def _burst(call: Call, clock: Callable[[], float]) -> _Burst:
    """Return how to time `call`, which this runs a few times: the first one may prepare what later ones reuse."""
    call()
    (once,) = _Burst(call, 1, warm=False, clock=clock).seconds()
    repeats = max(1, min(MOST_REPEATS, round(BURST_SECONDS / max(once, 1e-9))))
    return _Burst(call, repeats, once < LONG_SECONDS, clock, once > SINGLE_SECONDS)
