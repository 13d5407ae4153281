"""What the command `tune` does."""

from pathlib import Path

from redpebble.calibrating import calibrate
from redpebble.compiler import build_module
from redpebble.group_timing import measure_groups
from redpebble.layer_texts import report_notes
from redpebble.lowering.layer_report import module_report
from redpebble.rendering import console, layer_tables
from redpebble.runtime.cache import default_folder
from redpebble.runtime.machine_code import host_target
from redpebble.theory.kernel_cost import Machine
from redpebble.tuning import Tuning


def tune_and_print(model: Path | None, seconds: float) -> None:
    """Measure this machine, then the kernels of a model; show what was found.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: the seconds are negative.
    """
    folder = default_folder()
    console.print(machine_line(calibrate(folder)), highlight=False)
    if model is not None:
        module = build_module(model, tuning=Tuning.on(host_target(), folder, seconds))
        measure_groups(module, host_target())
        report = module_report(module)
        console.print(layer_tables(report))
        for note in report_notes(report):
            console.print(note, highlight=False)


def machine_line(machine: Machine) -> str:
    """Return what was measured of a machine, for a person."""
    caches = f"{machine.l1_bytes >> 10} KiB and {machine.l2_bytes >> 10} KiB of cache a core"
    speeds = f"{1 / machine.l3_ns:.0f} GB/s from beyond them, {1 / machine.dram_ns:.0f} from memory"
    paces = machine.paces.values()
    kernels = f"kernels take {min(paces):.2f} to {max(paces):.2f} times what is built in" if paces else "no kernels"
    return f"{machine.lanes} floats a vector, {caches}, {speeds}; {kernels}"
