"""Times of calls: percentiles of single calls, and rates of callers at once."""

import itertools
import threading
import time
from collections.abc import Callable

from redpebble.verification.measuring import Budget, interleave, throughputs


def ticking(seconds: float) -> Callable[[], float]:
    """Return a clock that goes on by so much at each look."""
    count = itertools.count()
    return lambda: seconds * next(count)


def test_calls_are_timed_one_by_one() -> None:
    timing = interleave({"engine": lambda: None}, Budget(0.0, clock=ticking(1e-5)))["engine"]
    assert (timing.rounds, timing.calls) == (7, 70)
    assert [round(us, 3) for us in (timing.min_us, timing.median_us, timing.p99_us)] == [10.0, 10.0, 10.0]


def test_calls_too_short_for_a_clock_are_timed_as_bursts() -> None:
    timing = interleave({"engine": lambda: None}, Budget(0.0, clock=ticking(2e-6)))["engine"]
    assert timing.calls == timing.rounds == 7
    assert round(timing.median_us, 3) == 0.04  # fifty calls between two looks


def test_a_round_in_which_the_clock_stands_still_is_not_the_fastest() -> None:
    now, calls = [0.0], itertools.count()

    def call() -> None:
        now[0] += 1e-3 if next(calls) < 100 else 0.0

    timing = interleave({"a": call}, Budget(0.0, least_rounds=200, clock=lambda: now[0]))["a"]
    assert timing.median_us == 0
    assert timing.min_us > 0


def test_the_percentile_of_few_calls_is_the_slowest() -> None:
    looks = itertools.accumulate(itertools.chain([0.0, *[1e-3] * 6, 9.0], itertools.repeat(1e-3)))
    timing = interleave({"engine": lambda: None}, Budget(0.0, clock=lambda: next(looks)))["engine"]
    assert (round(timing.median_us), round(timing.p99_us)) == (1000, 9_000_000)


def test_callers_call_at_once() -> None:
    callers = 3
    together = threading.Barrier(callers, timeout=10)  # passes only where all callers are in a call

    def call() -> None:
        together.wait()
        time.sleep(0.06)

    rates = throughputs({"engine": call}, callers, 0.0)
    assert 0 < rates["engine"] < callers / 0.06
