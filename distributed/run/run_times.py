"""Times of parts: `mpiexec -n P python -m redpebble.distributed.run.run_times PARTS SAMPLES SECONDS`.

The ranks run random inputs of so many samples again and again; the first one prints, as JSON, the milliseconds of the
fastest run and of their median, a run lasting until its slowest rank is done. Without arguments they measure messages.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from ..plans.cluster import Machine, measured_machine
from .liveness import watched
from .partitioned_network import PartitionedNetwork


def run_times(network: PartitionedNetwork, samples: int, seconds: float) -> NDArray[np.float64]:
    """Return the seconds [runs] of runs of `samples` samples, the first not counted; `batch` cuts them evenly."""
    comm, rng = network.comm, np.random.default_rng(0)
    slices: list[NDArray[np.float32]] = []
    for entry in network.inputs:
        rows = -(-samples // comm.size) if entry.features is None else samples
        size = entry.port.shape[-1].constant or 1
        width = size if entry.features is None else len(entry.features)
        slices.append(rng.random((rows, width), dtype=np.float32))
    network.run(*slices)
    times: list[float] = []
    end = time.monotonic() + seconds
    while comm.bcast(time.monotonic() < end or not times):
        comm.Barrier()
        started = time.perf_counter()
        network.run(*slices)
        times.append(comm.allreduce(time.perf_counter() - started, MPI.MAX))
    return np.array(times)


def main() -> None:
    """Measure what the arguments say."""
    comm = MPI.COMM_WORLD
    with watched(comm):
        if len(sys.argv) == 1:
            found = asdict(measured_machine(comm, Machine()))
        else:
            parts, samples, seconds = sys.argv[1:]
            times = run_times(PartitionedNetwork(comm, Path(parts)), int(samples), float(seconds)) * 1e3
            found = {"fastest": float(times.min()), "median": float(np.median(times)), "runs": len(times)}
    if comm.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
