"""What ranks run in tests of parts that do not fit: `loading_program.py HOW/parts...` says why each is refused."""

import sys
from pathlib import Path

from mpi4py import MPI

from redpebble.distributed.errors import PartError
from redpebble.distributed.network import Network


def main() -> None:
    """Try to load all folders."""
    for folder in map(Path, sys.argv[1:]):
        try:
            Network(MPI.COMM_WORLD, folder)
            reason = "nothing is wrong"
        except PartError as error:
            reason = str(error)
        sys.stdout.write(f"{folder.parent.name}: {reason}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
