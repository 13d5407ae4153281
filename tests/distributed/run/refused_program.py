"""What ranks run in tests of what does not fit: each rank says why it is refused, a line for each attempt.

`refused_program.py load HOW/PARTS...` tries to load folders, `refused_program.py run PARTS` to run on wrong slices, and
`refused_program.py files PARTS,X,Y,PATIENCE...` to run on files as the command does, each time on all ranks.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redpebble.distributed.errors import PartError
from redpebble.distributed.run.partitioned_network import PartitionedNetwork, RunOptions
from redpebble.distributed.run.run_parts import RunRequest, run_parts


def say_why(attempt: Callable[[], object], prefix: str = "") -> None:
    """Print the reason of a refusal."""
    try:
        attempt()
        reason = "nothing is wrong"
    except (PartError, ValueError) as error:
        reason = str(error)
    sys.stdout.write(f"{prefix}{reason}\n")
    sys.stdout.flush()


def wrong_slices(network: PartitionedNetwork) -> list[tuple[NDArray[Any], ...]]:
    """Slices of which one rank's is wrong."""
    assert network.inputs[0].features is not None
    rank, columns = MPI.COMM_WORLD.rank, len(network.inputs[0].features)
    good = np.zeros((3, columns), dtype=np.float32)
    return [
        (good, good) if rank == 0 else (good,),
        (good.astype(np.float64 if rank == 1 else np.float32),),
        (np.zeros((3, columns + 1), dtype=np.float32) if rank == 0 else good,),
        (np.zeros((3 + rank, columns), dtype=np.float32),),
    ]


def run_files(words: str) -> None:
    """Run as the command does; say with which exit code it ends."""
    parts, x, y, patience = words.split(",")

    def run() -> None:
        code = run_parts(RunRequest(Path(parts), [x], [y], RunOptions(), float(patience)))
        raise ValueError(f"exit code {code}")

    say_why(run)


def main() -> None:
    """Make all attempts."""
    what, *folders = sys.argv[1:]
    if what == "files":
        for words in folders:
            run_files(words)
        return
    for folder in map(Path, folders):
        if what == "load":
            say_why(lambda folder=folder: PartitionedNetwork(MPI.COMM_WORLD, folder), f"{folder.parent.name}: ")
            continue
        network = PartitionedNetwork(MPI.COMM_WORLD, folder)
        for slices in wrong_slices(network):
            say_why(lambda network=network, slices=slices: network.run(*slices))


if __name__ == "__main__":
    main()
