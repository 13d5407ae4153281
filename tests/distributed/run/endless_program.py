"""What ranks run in tests that kill or stop one of them: the command `run`, again and again.

`endless_program.py PARTS X Y FOLDER PATIENCE` writes the number of each rank's process to FOLDER once it has run.
"""

import os
import sys
from pathlib import Path

from mpi4py import MPI

from redpebble.distributed.run.liveness import watched
from redpebble.distributed.run.partitioned_network import RunOptions
from redpebble.distributed.run.run_parts import RunRequest, run_parts


def main() -> int:
    """Run until something fails."""
    parts, inputs, outputs, folder, patience = sys.argv[1:]
    request = RunRequest(Path(parts), [inputs], [outputs], RunOptions(batch_tile=16), float(patience))
    # a run watches its ranks from its start to its end; what is in between is watched here
    with watched(MPI.COMM_WORLD, float(patience)):
        while True:
            code = run_parts(request)
            if code:
                return code
            (Path(folder) / f"rank{MPI.COMM_WORLD.rank}").write_text(str(os.getpid()))


if __name__ == "__main__":
    sys.exit(main())
