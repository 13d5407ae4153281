"""What ranks run in the test of one that hangs before MPI starts: `late_program.py PARTS X Y PATIENCE`."""

import os
import signal
import sys
from pathlib import Path

from redpebble.distributed.run.partitioned_network import RunOptions
from redpebble.distributed.run.run_parts import RunRequest, run_parts


def main() -> int:
    """Run, on all ranks but the second one."""
    parts, inputs, outputs, patience = sys.argv[1:]
    if os.environ["PMI_RANK"] == "1":
        os.kill(os.getpid(), signal.SIGSTOP)
    return run_parts(RunRequest(Path(parts), [inputs], [outputs], RunOptions(), float(patience)))


if __name__ == "__main__":
    sys.exit(main())
