"""What every rank runs in tests, under mpiexec: `trained_program.py FOLDER` trains the parts of each case there.

A case holds parts/, options.json and data.npz, with inputs, labels `y`, `expected`, the outputs of the network that one
machine trained, and `losses`, those of its epochs. Exits with 1 where the trained parts have other outputs or losses,
or messages back are not those forward.
"""

import json
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redpebble.distributed.run.liveness import watched
from redpebble.distributed.run.partitioned_network import PartitionedNetwork, RunOptions, Slice
from redpebble.distributed.training.finetune_parts import finetune_parts
from redpebble.training.options import FinetuneOptions
from redpebble.training.samples import Samples, Task

Array = NDArray[Any]


def complaints(case: Path) -> list[str]:
    """What is wrong with a case."""
    comm = MPI.COMM_WORLD
    data: dict[str, Array] = dict(np.load(case / "data.npz"))
    labels, expected, losses = (data.pop(name) for name in ("y", "expected", "losses"))
    options = FinetuneOptions(**json.loads((case / "options.json").read_text()))
    found = finetune_parts(comm, (case / "parts", case / "out"), Task(Samples(data, labels), None, options))
    sent, wrong = found.sent, list[str]()
    if sent.forward != sent.backward or not found.report.best:
        wrong.append(f"{case.name}: {sent}, best after {found.report.best}")
    curve = [epoch.validation for epoch in found.report.epochs]
    if not np.allclose(curve, losses, 1e-4, 1e-5):
        wrong.append(f"{case.name}: losses {curve}, expected {losses}")
    own = cast("MPI.Intracomm", comm.Split(comm.rank // found.parts, comm.rank))
    network = PartitionedNetwork(own, case / "out", RunOptions(cache=False))
    slices = [_own(data[entry.port.name], entry) for entry in network.inputs]
    actual = network.run(*slices)
    assert isinstance(actual, np.ndarray)
    wanted = _own(expected, network.outputs[0])
    if wanted.size and not np.allclose(actual, wanted, 1e-4, 1e-4):
        wrong.append(f"{case.name} rank {comm.rank}: off by {np.abs(actual - wanted).max()}")
    return wrong


def _own(whole: Array, entry: Slice) -> Array:
    return np.ascontiguousarray(whole[:, entry.features] if entry.nodes is None else whole[entry.nodes])


def main() -> None:
    """Run all cases; all ranks go through all of them."""
    with watched(MPI.COMM_WORLD):
        cases = sorted(path.parent for path in Path(sys.argv[1]).glob("*/parts"))
        found = [line for case in cases for line in complaints(case)]
    print(*found, sep="\n")
    sys.exit(1 if found or not cases else 0)


if __name__ == "__main__":
    main()
