"""Tests, which share the loops that numba compiles, in all of their processes, whatever cache one of them is given."""

import os
from pathlib import Path

os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "loops"))
