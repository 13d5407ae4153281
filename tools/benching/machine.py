"""The machine that was measured."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...foundation.threads import usable_threads
from ...runtime.jit import host_target, this_cpu

LEVELS: Final = {16: "AVX-512", 8: "AVX2", 4: "SSE2"}
"""Names of instruction sets by the floats of a vector."""


def describe_machine() -> dict[str, Any]:
    """Return the identity of the machine, as JSON."""
    target = host_target()
    return {
        "architecture": platform.machine(),
        "system": platform.system(),
        "cpu": target.cpu,
        "model": _cpu_model(),
        "vector_floats": target.lanes,
        "vector_floats_of_cpu": this_cpu().lanes,
        "cores": os.cpu_count(),
        "usable_cores": usable_threads(),
        "python": platform.python_version(),
    }


def machine_words(machine: Mapping[str, Any]) -> str:
    """Return a machine in a line, such as `AMD EPYC 7571, 2 cores, AVX2, Linux x86_64`."""
    cores, usable = machine["cores"], machine["usable_cores"]
    shown = f"{usable} of {cores} cores" if usable != cores else f"{cores} core{'s' if cores != 1 else ''}"
    names = LEVELS if machine["architecture"] == "x86_64" else {4: "NEON"}
    ours, theirs = (
        names.get(floats, f"vectors of {floats} floats")
        for floats in (machine["vector_floats"], machine["vector_floats_of_cpu"])
    )
    level = ours if ours == theirs else f"{theirs} (our code: {ours})"
    return f"{machine['model']}, {shown}, {level}, {machine['system']} {machine['architecture']}"


def _cpu_model() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
