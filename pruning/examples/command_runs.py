"""Runs of `redpebble prune` in processes of their own, so that their time and memory can be told."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class PruneRun(NamedTuple):
    """A model that was pruned, what `--report` says, and what the run took."""

    goal: str
    model: Path
    report: Mapping[str, Any]
    seconds: float
    processor_seconds: float
    gibibytes: float
    """The most memory that the process had."""

    def __str__(self) -> str:
        """Return the line that says it."""
        report = self.report
        predicted = report["predicted_us"]
        ratio = "" if predicted is None else f", predicted over measured {predicted / report['pruned_us']:.2f}"
        return (
            f"{self.goal:18} {report['connections'] / report['parameters']:5.1%} left, {report['speedup']:.2f}x as fast"
            f"{ratio}, {report['loss']:.1%} of the variance lost on its data; {self.seconds:.0f} s, "
            f"{self.processor_seconds:.0f} of processors, {self.gibibytes:.2f} GiB"
        )


def pruned_by_command(folder: Path, goal: Sequence[str]) -> PruneRun:
    """Return the result of `redpebble prune` on `dense.onnx` and `calibration.npz` in a folder, for a goal.

    Raises:
        ChildProcessError: it failed, and has said why.
    """
    name = "_".join(goal).replace("-", "")
    model, report = folder / f"{name}.onnx", folder / f"{name}.json"
    files = [str(folder / "dense.onnx"), str(model), "--data", str(folder / "calibration.npz"), "--report", str(report)]
    start = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "redpebble", "prune", *files, *goal], stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise ChildProcessError(f"redpebble prune {' '.join(goal)} failed with {process.returncode}")
    return PruneRun(
        " ".join(goal),
        model,
        json.loads(report.read_text()),
        time.monotonic() - start,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 2**20,
    )
