"""What `compile` would make of a model on this machine, and how long that takes here: measured kernel by kernel."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.reports.layer_report import Report, module_report
from redpebble.options import Options
from redpebble.pipeline import run_stages
from redpebble.runtime.jit import host_target
from redpebble.runtime.store.cache import default_folder
from redpebble.tuning.group_timing import measure_groups
from redpebble.tuning.measure_kernels import Tuning, measure_chosen

MEASURING_SECONDS: Final = 0.2
"""For all kernels together, a few calls of each at least."""


def native_report(module: ModuleOp, options: Options, cache: Path | None = None) -> Report:
    """Return the lines of a simplified module after all that `compile` does by `options`.

    Kernels are those of this machine, as far as `cache` (the user's folder) knows it. Where something in the module is
    not covered, layers are those that `compile` would make of each by itself.
    """
    known = Tuning.recalled(host_target(), default_folder() if cache is None else cache)
    prepared = module.clone()
    is_covered = not any(isinstance(op, ForeignOp) for op in prepared.walk())
    run_stages(prepared, replace(options, tuning=known), after="simplify", until="" if is_covered else "choose")
    measure_chosen(prepared, replace(known, seconds=MEASURING_SECONDS))
    measure_groups(prepared, known.target)
    return module_report(prepared)
