"""Compilation in a fresh process: seconds, and the bytes of memory that it keeps.

`python -m redpebble.bench.fresh_process MODEL CACHE` prints a line of JSON. A tiny model is compiled first
where memory is asked for (`--memory`), so that what the compiler and LLVM keep for themselves does not count.
"""

import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import redpebble

from ..tools.benching.layer_cases import RandomLayer

STATM = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
BATCHES = (1, 64)
"""Sizes of the calls before memory is read."""


@dataclass(frozen=True)
class Footprint:
    """Seconds of `compile` and of the calls after it, bytes that the process grew by, and bytes of packed weights."""

    compile_seconds: float
    first_calls_seconds: float
    growth_bytes: int
    kept_bytes: int
    """Part of the growth that is left when the allocator has returned free pages to the system."""
    packed_bytes: int


def resident_bytes() -> int:
    """Return the memory of this process that is in use."""
    gc.collect()
    if not STATM.exists():
        # the most that it ever used, in bytes on macOS
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(STATM.read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def trimmed_bytes() -> int:
    """Return the memory in use after glibc has returned what is free; elsewhere, the memory in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return resident_bytes()


def footprint(model: Path, cache: Path) -> Footprint:
    """Compile `model` with the cache in folder `cache`, and call it."""
    before, start = resident_bytes(), time.perf_counter()
    network = redpebble.compile(model, cache=cache)
    compiled = time.perf_counter()
    (tensor,) = network.get_inputs()
    for batch in BATCHES:
        network.run(None, {tensor.name: np.zeros((batch, int(tensor.shape[1])), dtype=np.float32)})
    end = time.perf_counter()
    packed = sum(array.nbytes for array in network.program.constants)
    grown = resident_bytes()
    return Footprint(compiled - start, end - compiled, grown - before, trimmed_bytes() - before, packed)


def footprint_in_a_fresh_process(model: Path, cache: Path, *, after_another: bool = False) -> Footprint:
    """Return the measurements of a new process; `after_another` first compiles a model of one small layer."""
    words = [sys.executable, "-m", "redpebble.bench.fresh_process", str(model), str(cache)]
    done = subprocess.run(
        [*words, *(["--memory"] if after_another else [])], capture_output=True, text=True, check=True
    )
    return Footprint(**json.loads(done.stdout))


def main(words: list[str]) -> None:
    """Measure, and print the footprint."""
    model, cache = (Path(word) for word in words[:2])
    if "--memory" in words:
        with tempfile.TemporaryDirectory() as folder:
            footprint(RandomLayer(64, 64, 0.9).save(Path(folder)), Path(folder))
    print(json.dumps(asdict(footprint(model, cache))))


if __name__ == "__main__":
    main(sys.argv[1:])
