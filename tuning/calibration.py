"""The name of this machine, its caches, and the time of a byte from beyond them."""

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ..kernels.formats import dense_outputs
from ..kernels.machine import DEFAULT_PRICES
from ..lowering.architectures import host_name
from ..lowering.cpu_target import CpuTarget
from ..lowering.kernels.timed_kernels import RepeatedKernel
from .kernel_timing import KernelClock, PackedLayer, Sample

CACHE_FOLDER: Final = Path("/sys/devices/system/cpu/cpu0/cache")

CPU_FILE: Final = Path("/proc/cpuinfo")

PRICES_OF_CPUS: Final = (
    ("GenuineIntel", "vaes", "emerald_rapids"),
    ("GenuineIntel", "", "cascade_lake"),
    ("AuthenticAMD", "", "zen5"),
)
"""Vendor, a feature of its newer CPUs -> the measured machine for them. The first row that fits a CPU holds.

Intel's CPUs have `vaes` since Ice Lake, whose caches and ports are like those of Emerald Rapids.
"""

PRICES_BY_PART: Final = {"0xd0b": "cortex_a76", "0xd4f": "neoverse_v2", "0xd40": "neoverse_v2", "0xd49": "neoverse_n2"}
"""The predicted machine for CPUs of ARM by the number of their part; others are taken for a Neoverse N1."""

STREAM_SECONDS: Final = 0.5

STREAM: Final = RepeatedKernel(dense_outputs.FAMILY.name, 1)
"""The kernel that reads most for what it computes."""

STREAM_INPUTS: Final = 1024

STREAM_BYTES: Final = tuple(1 << power for power in (18, 20, 22, 23, 24, 25))
"""Sizes of which the speed of reading is measured: 256 KiB to 32 MiB."""


class CacheSizes(NamedTuple):
    """Bytes of the data caches that a core reads through."""

    l1: int
    l2: int
    l3: int | None = None
    """Shared by some or all cores; None where there is none."""


@cache
def cache_sizes(folder: Path = CACHE_FOLDER) -> CacheSizes | None:
    """Return the sizes that Linux knows; None where it does not."""
    sizes: dict[int, int] = {}
    try:
        for entry in folder.glob("index*"):
            if (entry / "type").read_text().strip() != "Instruction":
                kibibytes = (entry / "size").read_text().strip().removesuffix("K")
                sizes[int((entry / "level").read_text())] = int(kibibytes) << 10
        return CacheSizes(sizes[1], sizes[2], sizes.get(3))
    except (OSError, ValueError, KeyError):
        return None


@cache
def machine_name(target: CpuTarget) -> str:
    """Return a name for what times depend on: the CPU, what of it `target` uses, and our version."""
    parts = (cpu_model(), target.cpu, target.features, version("redpebble"), version("llvmlite"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def cpu_model(file: Path = CPU_FILE) -> str:
    """Return the CPU's own name."""
    return _cpu_word("model name", file) or platform.machine()


def prices_of_cpu(file: Path = CPU_FILE) -> str:
    """Return the measured machine that is most like this one: whose prices count here."""
    if host_name() == "aarch64":
        by_part = PRICES_BY_PART.get(_cpu_word("CPU part", file), "neoverse_n1")
        return "apple_m" if platform.system() == "Darwin" else by_part
    vendor, features = _cpu_word("vendor_id", file), _cpu_word("flags", file).split()
    alike = (machine for name, feature, machine in PRICES_OF_CPUS if name == vendor and feature in ("", *features))
    return next(alike, DEFAULT_PRICES)


def _cpu_word(name: str, file: Path) -> str:
    """Return an entry of /proc/cpuinfo or its like; empty if it is missing."""
    try:
        # no further than the first CPU: the system writes this file while it is read, for hundreds of them
        with file.open(encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
    except OSError:
        return ""


def stream_times(clock: KernelClock, seconds: float) -> Mapping[int, float]:
    """Return the nanoseconds of a byte in a loop over so many bytes, for each of `STREAM_BYTES`."""
    samples: dict[str, Sample] = {}
    all_weights = np.ones(STREAM_BYTES[-1] // 4, dtype=np.float32)
    for size in STREAM_BYTES:
        outputs = size // (4 * STREAM_INPUTS)
        layer = PackedLayer((STREAM_INPUTS, outputs), (all_weights[: size // 4], np.zeros(outputs, np.float32)), 0)
        samples[str(size)] = clock.sample(STREAM, layer)
    times = clock.fastest(samples, seconds, least_rounds=5)
    return {size: 1000 * times[str(size)] / size for size in STREAM_BYTES}
