"""What the command `tune` does."""

from pathlib import Path

from redpebble.bench.results.console import console
from redpebble.dialect.reports.layer_report import module_report
from redpebble.kernels.machine import Machine
from redpebble.options import Options
from redpebble.pipeline import build
from redpebble.runtime.jit import host_target
from redpebble.runtime.store.cache import default_folder
from redpebble.tools.explain.layer_tables import report_notes
from redpebble.tools.rendering import layer_tables
from redpebble.tuning.machines import calibrate
from redpebble.tuning.measure_kernels import Tuning


def tune_and_print(model: Path | None, seconds: float) -> None:
    """Measure this machine, then the kernels of a model; show what was found.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: the seconds are negative.
    """
    folder = default_folder()
    console.print(machine_line(calibrate(folder)), highlight=False)
    if model is not None:
        report = module_report(build(model, Options(tuning=Tuning.on(host_target(), folder, seconds))))
        console.print(layer_tables(report))
        for note in report_notes(report):
            console.print(note, highlight=False)


def machine_line(machine: Machine) -> str:
    """Return what was measured of a machine, for a person."""
    caches = f"{machine.l1_bytes >> 10} KiB and {machine.l2_bytes >> 10} KiB of cache a core"
    speeds = f"{1 / machine.l3_ns:.0f} GB/s from beyond them, {1 / machine.dram_ns:.0f} from memory"
    factors = machine.calibration_factors.values()
    kernels = (
        f"kernels take {min(factors):.2f} to {max(factors):.2f} times what is built in" if factors else "no kernels"
    )
    return f"{machine.lanes} floats a vector, {caches}, {speeds}; {kernels}"
