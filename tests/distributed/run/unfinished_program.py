"""What ranks run in tests that end one of them while an output is not complete.

`unfinished_program.py PARTS X Y FOLDER PATIENCE RANK SIGNAL`: the rank sends itself the signal where it would write,
and both wait then; FOLDER gets a file `was there` when the output was.
"""

import os
import sys
import time
from pathlib import Path

from redpebble.distributed.run.partitioned_network import RunOptions, Slice
from redpebble.distributed.run.run_parts import Floats, OutputFile, RunRequest, run_parts


def main() -> int:
    """Run up to the first output."""
    parts, inputs, outputs, folder, patience, rank, number = sys.argv[1:]

    def wait(self: OutputFile, entry: Slice, values: Floats, first: int) -> None:
        if os.environ["PMI_RANK"] == rank:
            assert self.temporary.exists()
            (Path(folder) / "was there").touch()
            os.kill(os.getpid(), int(number))
        while True:
            time.sleep(0.1)

    OutputFile.write = wait
    return run_parts(RunRequest(Path(parts), [inputs], [outputs], RunOptions(), float(patience)))


if __name__ == "__main__":
    sys.exit(main())
