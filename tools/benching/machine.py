"""The machine that was measured."""

import os
import platform
from pathlib import Path
from typing import Any

from ...runtime.jit import host_target


def describe_machine() -> dict[str, Any]:
    """Return the identity of the machine, as JSON."""
    target = host_target()
    return {
        "architecture": platform.machine(),
        "system": platform.system(),
        "cpu": target.cpu,
        "model": _cpu_model(),
        "vector_floats": target.lanes,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
