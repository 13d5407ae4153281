"""Starts of the search by Mt-KaHyPar, in a process of its own: what it does to that process costs no more than a layer.

Layers that the process finished are kept. The one in which it died or took too long gets our own start, and a new
process continues behind it, until that has happened too often.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import numpy as np

from redpebble.distributed.plans.mtkahypar_worker import Task, result_file, write_task
from redpebble.theory.partition.balance import loads_of
from redpebble.theory.partition.grow_parts import grow_parts
from redpebble.theory.partition.match_parts import match_parts
from redpebble.theory.partition.partition import Owners
from redpebble.theory.partition.refine_partition import Chain

COMMAND = (sys.executable, "-m", "redpebble.distributed.plans.mtkahypar_worker")

_MOST_FAILURES = 3


def is_installed() -> bool:
    """Return whether Mt-KaHyPar is there."""
    return find_spec("mtkahypar") is not None


@dataclass
class MtKaHyPar:
    """Proposes what Mt-KaHyPar finds; `notes` says afterwards in which layers it failed, and how."""

    seed: int
    seconds: float
    """Seconds for the whole chain; what is not done then gets our own start."""
    threads: int = 2
    command: Sequence[str] = COMMAND
    notes: list[str] = field(default_factory=list[str])

    def __call__(self, chain: Chain) -> Sequence[Sequence[Owners]]:
        """Return one start, or none when no layer could be solved."""
        deadline = monotonic() + self.seconds
        owners, parts = chain.input_owners, list[Owners]()
        failures = 0
        with TemporaryDirectory(prefix="redpebble-") as name:
            while len(parts) < len(chain.layers):
                first = len(parts)
                task = self._task(chain, owners, first)
                reason = self._run(Path(name), task, deadline) if failures < _MOST_FAILURES else ""
                parts += _results(Path(name), chain, first)
                if len(parts) > first:
                    owners = chain.layers[len(parts) - 1].owners_of(parts[-1])
                if len(parts) < len(chain.layers):
                    if failures < _MOST_FAILURES:
                        failures += 1
                        what = reason or "filled a part too much"
                        self.notes.append(f"Mt-KaHyPar {what} in layer {len(parts)}, which got our own start")
                    parts.append(_own_start(chain, len(parts), owners))
                    owners = chain.layers[len(parts) - 1].owners_of(parts[-1])
        return [parts]

    def _task(self, chain: Chain, owners: Owners, first: int) -> Task:
        return Task(
            list(chain.layers), list(chain.most_connections), owners, chain.part_count, first, self.seed, self.threads
        )

    def _run(self, folder: Path, task: Task, deadline: float) -> str:
        """Run a child; return how it failed, empty when it did not."""
        write_task(folder, task)
        child = subprocess.Popen(
            [*self.command, str(folder)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            code = child.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            return f"took longer than {self.seconds:g} s"
        finally:
            child.kill()
            child.wait()
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}" if code else ""


def _results(folder: Path, chain: Chain, first: int) -> list[Owners]:
    """Return what a child has saved from layer `first` on, as far as it is of use."""
    found: list[Owners] = []
    for number in range(first, len(chain.layers)):
        if not result_file(folder, number).exists():
            break
        parts = np.load(result_file(folder, number))
        layer = chain.layers[number]
        if loads_of(layer.weights, parts, chain.part_count).max() > chain.most_connections[number]:
            break
        found.append(parts)
    return found


def _own_start(chain: Chain, number: int, owners: Owners) -> Owners:
    layer = chain.layers[number]
    grown = grow_parts(layer, chain.part_count, chain.most_connections[number])
    return match_parts(layer, grown, owners, chain.part_count)
