"""What ranks run in tests of signals at the start: `signalled_program.py MODULE SIGNAL ARGUMENTS..`.

Rank 1 sends itself the signal where the command line of `ARGUMENTS` first asks for a module.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from redpebble.tools.main import main


class _Signalling(MetaPathFinder):
    def __init__(self, module: str, number: int) -> None:
        self.module, self.number = module, number

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find nothing, but send the signal where the module is asked for."""
        if fullname == self.module:
            os.kill(os.getpid(), self.number)
        return None


if __name__ == "__main__":
    if os.environ["PMI_RANK"] == "1":
        sys.meta_path.insert(0, _Signalling(sys.argv[1], int(sys.argv[2])))
    sys.argv = ["redpebble", *sys.argv[3:]]
    main()
