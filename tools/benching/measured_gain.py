"""The gain of an optimized model as a clock finds it: its session and the original's take turns, on one thread."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx_ir
import onnxruntime

from ...export.loadable_model import loadable
from ...ort.any_model import session

SECONDS: Final = 1.0
LEAST_ROUNDS: Final = 3

UNITS: Final = ((1e6, "s"), (1e3, "ms"), (1.0, "us"), (1e-3, "ns"))
"""Microseconds from which a unit is used; less than the last one no call takes."""


@dataclass(frozen=True)
class MeasuredGain:
    """Microseconds of a call of each session, the least of some rounds."""

    original_us: float
    ours_us: float
    rounds: int

    @property
    def ratio(self) -> float:
        """Times as fast."""
        return self.original_us / self.ours_us

    def __str__(self) -> str:
        least, unit = next((least, unit) for least, unit in UNITS if self.original_us >= least)
        before, after = (float(f"{time / least:.3g}") for time in (self.original_us, self.ours_us))
        return f"{self.ratio:.1f}x measured in a session on one thread, {before:g} -> {after:g} {unit} a call"


def measured_gain(
    original: Path, optimized: onnx_ir.Model, feeds: Mapping[str, Any], seconds: float = SECONDS
) -> MeasuredGain:
    """Return the times of both models on the same inputs, as far as so many seconds go."""
    with loadable(optimized) as source:
        before = onnxruntime.InferenceSession(str(original), _options(), providers=["CPUExecutionProvider"])
        sessions = (before, session(source, _options()))
        least = [float("inf")] * len(sessions)
        start, rounds = time.perf_counter(), 0
        while rounds < LEAST_ROUNDS or time.perf_counter() - start < seconds:
            for index, each in enumerate(sessions):
                begun = time.perf_counter()
                each.run(None, feeds)
                least[index] = min(least[index], time.perf_counter() - begun)
            rounds += 1
    return MeasuredGain(1e6 * least[0], 1e6 * least[1], rounds)


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options
