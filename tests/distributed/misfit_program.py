"""What ranks run in tests of slices that do not fit: `misfit_program.py PARTS` says why each is refused."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redpebble.distributed.errors import PartError
from redpebble.distributed.network import Network


def main() -> None:
    """Run on slices of which one rank's is wrong."""
    network, rank = Network(MPI.COMM_WORLD, Path(sys.argv[1])), MPI.COMM_WORLD.rank
    assert network.inputs[0].features is not None
    columns = len(network.inputs[0].features)
    good = np.zeros((3, columns), dtype=np.float32)
    wrong: list[tuple[NDArray[Any], ...]] = [
        (good, good) if rank == 0 else (good,),
        (good.astype(np.float64 if rank == 1 else np.float32),),
        (np.zeros((3, columns + 1), dtype=np.float32) if rank == 0 else good,),
        (np.zeros((3 + rank, columns), dtype=np.float32),),
    ]
    for slices in wrong:
        try:
            network.run(*slices)
            reason = "nothing is wrong"
        except PartError as error:
            reason = str(error)
        sys.stdout.write(f"{reason}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
