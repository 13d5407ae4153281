"""The commands `partition` and `simulate`: a model becomes a folder of parts, or predictions for many machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..distributed.plans.cluster import measured_world
from ..distributed.plans.plans import Candidate, PlanRequest, plan
from ..distributed.plans.scaling import predict_scaling, save_scaling_plot, scaling_lines
from ..distributed.write_parts import PartsRequest, check_target, write_parts
from ..driver.model_digest import model_digest
from ..options import Options
from ..passes.analysis.partitioned_layers import write_partition
from ..pipeline import build
from .console.console import console
from .console.working import working
from .json_reports import write_report

ORDERINGS = ("pebble-reorder-neurons", "pebble-schedule-network")
"""Passes that order neurons for a machine with all of them: parts have other neurons, in an order of their own."""


@dataclass(frozen=True)
class PartsFolder:
    """The folder that `partition` writes, and its report."""

    folder: Path
    report: Path | None


def partition_model(model: Path, output: PartsFolder, request: PlanRequest, *, measure: bool = False) -> None:
    """Split a model into a folder of parts, and show how and why; with `measure` every rank of mpiexec is to call it.

    Raises:
        ModelError: the model is unreadable, not covered, or cannot be split like this.
        ValueError: a number makes no sense, or no plan fits into memory.
        OSError: the folder cannot be written.
    """
    folder = output.folder
    check_target(folder)
    if measure:
        machine = measured_world(request.machine)
        if machine is None:
            return
        request = replace(request, machine=machine)
        _say(f"measured: {machine.latency * 1e6:.1f} us and {machine.bandwidth / 1e9:.2f} GB/s between ranks")
    options = Options(skip_passes=ORDERINGS if request.kind in ("rows", "layers") else ())
    with working("planning parts of", model):
        module, digest = build(model, options), model_digest(model)
        chosen = plan(module, request)
    for line in chosen.lines:
        _say(line)
    if chosen.partition is not None and chosen.kind != "nodes":
        write_partition(module, chosen.partition)
    name = "" if digest is None else digest.hex()
    parts = PartsRequest(chosen.kind, request.part_count, chosen.partition, name, chosen.lines[-1], batch=request.batch)
    with working("writing parts of", model):
        written = write_parts(module, parts, folder)
    sizes = [(folder / part.file).stat().st_size for part in written.parts]
    _say(f"{written.kind}: {written.part_count} parts of {min(sizes):,} to {max(sizes):,} bytes in {folder}")
    plans = _candidates({one.kind: one for one in chosen.candidates})
    write_report(output.report, "partition", {"kind": written.kind, "part_bytes": sizes, "plans": plans})


def _say(line: str) -> None:
    """Print a line whole, unless the command is to be quiet."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _candidates(candidates: Mapping[str, Candidate]) -> dict[str, dict[str, float]]:
    """Return the plans that were compared, as reports have them."""
    return {kind: {"seconds": one.time.seconds, "machine_bytes": one.memory} for kind, one in candidates.items()}


@dataclass(frozen=True)
class ScalingOutput:
    """The files that `simulate` writes: a picture, a report."""

    plot: Path | None
    report: Path | None


def simulate_model(model: Path, requests: Sequence[PlanRequest], output: ScalingOutput) -> None:
    """Predict and show the time of each plan for each number of parts, and draw it.

    Raises:
        ModelError: the model is unreadable or not covered.
        ValueError: a number makes no sense, or the plot has no known format.
    """
    with working("predicting", model):
        scaling = predict_scaling(build(model), requests)
    for line in scaling_lines(scaling):
        _say(line)
    if output.plot is not None:
        save_scaling_plot(scaling, model.stem, output.plot)
    by_parts = [{"parts": count, "plans": _candidates(plans)} for count, plans in scaling.candidates.items()]
    write_report(output.report, "simulate", {"batch": scaling.batch, "predictions": by_parts})
