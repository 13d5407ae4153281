"""What every rank runs in tests, under mpiexec: cases that lie in a folder, each of them parts, inputs and outputs.

`rank_program.py FOLDER` runs every case CASE/ (parts/, options.json, and feeds.npz, with names in*.BATCH and
out*.BATCH) and exits with 1 where an output is not as expected, with a line that says which. Where there is a file
CASE/codes, outputs are expected to the last bit, and a byte for every value that is sent.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redpebble.distributed.run.liveness import watched
from redpebble.distributed.run.partitioned_network import PartitionedNetwork, RunOptions, Slice

Array = NDArray[Any]

COUNTED = ("row_bytes_sent", "row_bytes_received")


def cut(whole: Array, entry: Slice) -> Array:
    """What this rank has of an array."""
    if entry.features is not None:
        return np.ascontiguousarray(whole[..., entry.features])
    if entry.nodes is not None:
        return np.ascontiguousarray(whole[entry.nodes])
    comm = MPI.COMM_WORLD
    return np.array_split(whole, comm.size)[comm.rank]


def complaints(case: Path) -> list[str]:
    """What is wrong with the outputs of a case on this rank."""
    # the same parts run with several options, and are compiled once
    options = RunOptions(**json.loads((case / "options.json").read_text()), cache=case.parent.with_suffix(".cache"))
    network = PartitionedNetwork(MPI.COMM_WORLD, case / "parts", options)
    arrays: dict[str, Array] = dict(np.load(case / "feeds.npz"))
    found: list[str] = []
    exact, close = (case / "codes").exists(), partial(np.allclose, rtol=1e-4, atol=1e-5, equal_nan=True)
    batches = sorted({int(name.rpartition(".")[2]) for name in arrays})
    for batch in batches:
        feeds = [cut(arrays[f"in{index}.{batch}"], entry) for index, entry in enumerate(network.inputs)]
        outputs = network.run(*feeds)
        for index, actual in enumerate(outputs if isinstance(outputs, list) else [outputs]):
            expected = cut(arrays[f"out{index}.{batch}"], network.outputs[index])
            if actual.shape != expected.shape:
                found.append(f"{case.name} batch {batch}: shape {actual.shape}, expected {expected.shape}")
            elif not (np.array_equal if exact else close)(actual, expected):
                error = np.nanmax(np.abs(actual - expected))
                found.append(f"{case.name} batch {batch} output {index} rank {MPI.COMM_WORLD.rank}: off by {error}")
    return found + wrong_counts(case, network, sum(batches))


def wrong_counts(case: Path, network: PartitionedNetwork, samples: int) -> list[str]:
    """What is wrong with the bytes that were counted; of whole blocks every value of the volume is one number."""
    reports = MPI.COMM_WORLD.allgather(network.report)
    sent, received = (sum(getattr(report, word) for report in reports) for word in COUNTED)
    if sent != received:
        return [f"{case.name}: {sent} bytes sent, {received} received"]
    left_out, block = sum(report.rows_left_out for report in reports), network.plan.block
    value_bytes = 1 if (case / "codes").exists() else 4
    expected = network.plan.volume * value_bytes * samples
    if network.plan.kind != "batch" and samples % block == 0 and sent + left_out * value_bytes * block != expected:
        return [f"{case.name}: {sent} bytes sent, {left_out} rows left out, expected {expected} bytes in all"]
    return []


def main() -> int:
    """Run all cases of the folder."""
    found: list[str] = []
    with watched(MPI.COMM_WORLD):
        for case in sorted(Path(sys.argv[1]).iterdir()):
            found += complaints(case)
    for line in found:
        print(line, flush=True)
    return 1 if MPI.COMM_WORLD.allreduce(len(found)) else 0


if __name__ == "__main__":
    sys.exit(main())
