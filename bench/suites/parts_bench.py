"""The benchmark of parts: what the simulator predicts against what ranks of this machine take.

`python -m redpebble.bench.suites.parts_bench [SECONDS]` prints a line for each network, plan and number of ranks, one
thread each: predicted, measured milliseconds (the median of some SECONDS, 1 unless given), their ratio, and how much
faster that is than one rank with the whole network. Ranks that share a core are predicted to have their share of its
rates.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer
from xdsl.dialects.builtin import ModuleOp

from ...distributed.plans.cluster import SHARED_MEMORY, Machine
from ...distributed.plans.plans import ROW_KINDS, PlanRequest, plan
from ...distributed.write_parts import PartsRequest, write_parts
from ...foundation.threads import usable_threads
from ...models import zoo
from ...pipeline import build
from ...tools.console.console import console
from ..results.page_tables import PageTable, Write

PLANS: Final = PageTable(
    "parts on ranks", ("network, samples", "plan", "ranks", "predicted ms", "measured ms", "ratio", "speedup")
)
MPIEXEC: Final = Path(sys.executable).with_name("mpiexec")
RANKS: Final = (1, 2, 4)


@dataclass(frozen=True)
class PartsCase:
    """A model of the zoo, and the samples of a run."""

    spec: str
    samples: int


CASES: Final = (
    PartsCase("ffnn(depth=8, width=1024, density=0.03)", 4096),
    PartsCase("ffnn(depth=3, width=768, density=0.2)", 4096),
)


@dataclass(frozen=True)
class Measured:
    """A plan on some ranks: predicted and measured milliseconds."""

    kind: str
    ranks: int
    predicted: float
    measured: float


def measure(case: PartsCase, machine: Machine, seconds: float) -> Iterator[Measured]:
    """Measure all plans of a case, on one rank first."""
    module = build(zoo.build(case.spec))
    for kind in ROW_KINDS:
        for ranks in RANKS:
            share = max(1, ranks // usable_threads())
            request = PlanRequest(ranks, kind, batch=case.samples, machine=machine.shared(share))
            yield _measured(module, request, seconds)


def _measured(module: ModuleOp, request: PlanRequest, seconds: float) -> Measured:
    found = plan(module, request)
    with TemporaryDirectory() as folder:
        parts = Path(folder) / "parts"
        parts_request = PartsRequest(found.kind, request.part_count, found.partition, batch=request.batch)
        write_parts(module, parts_request, parts)
        times = ranks_say(request.part_count, str(parts), str(request.batch), str(seconds))
    return Measured(found.kind, request.part_count, found.candidates[0].time.seconds * 1e3, times["median"])


def ranks_say(ranks: int, *arguments: str) -> dict[str, float]:
    """Return the measurements of the ranks, see `redpebble.distributed.run.run_times`."""
    command = [str(MPIEXEC), "-n", str(ranks), sys.executable, "-m", "redpebble.distributed.run.run_times", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def cells_of(measured: Iterator[Measured]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each plan and number of ranks; the first one is the whole network on one rank."""
    whole = 0.0
    for one in measured:
        whole = whole or one.measured
        numbers = (one.predicted, one.measured, one.predicted / one.measured, whole / one.measured)
        yield one.kind, str(one.ranks), *(f"{number:.2f}" for number in numbers)


def main(seconds: Annotated[float, typer.Argument(help="Time of each plan.")] = 1.0, *, write: Write = False) -> None:
    """Print a line for each network, plan and number of ranks."""
    found = ranks_say(2)
    console.print(f"MPI: {found['latency'] * 1e6:.1f} us and {found['bandwidth'] / 1e9:.1f} GB/s between two ranks")
    with PLANS.rows(write=write) as add:
        for case in CASES:
            for cells in cells_of(measure(case, SHARED_MEMORY, seconds)):
                add(f"{case.spec}, {case.samples}", *cells)


if __name__ == "__main__":
    typer.run(main)
