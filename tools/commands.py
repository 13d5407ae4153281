"""The commands; `main.py` reads the command line, `tables.py` lays out results."""

import logging
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import fill, indent
from typing import Any, Final, NamedTuple

import numpy as np
import onnx_ir
import onnxruntime
from typing_extensions import override

from ..dialect.reports.layer_report import Report
from ..dialect.reports.module_report import module_report
from ..driver.compiler import Optimized, native_code, on_machine, optimized
from ..driver.stated_sizes import with_sizes
from ..export.loadable_model import loadable
from ..export.save_model import save_model
from ..foundation.log import LOG
from ..frontend.reading.external_files import files_of
from ..frontend.reading.model_source import read_model, read_runnable_model
from ..lowering.cpu_target import CpuTarget
from ..options import Options
from ..ort.any_model import session
from ..ort.session import write_library
from ..pipeline import build, run_stages
from ..runtime.jit import host_target
from ..runtime.store.artefact import write_artefact
from ..runtime.store.cache import default_folder
from ..tuning.machines import calibrate
from ..tuning.measure_kernels import Tuning
from ..verification.compare import CheckPlan, agree, compare_runs
from ..verification.oracle import Comparison, Oracle
from .comparing.checking import compare_session
from .console.console import console
from .console.working import working
from .explain_commands import last_stage
from .headline import print_gain
from .inspection import NOTHING_SHOWN, Inspection
from .json_reports import write_report
from .tables import (
    comparison_table,
    layer_tables,
    machine_line,
    network_table,
    print_layers,
    split_table,
    summary_table,
)

# The gain of an optimized model as a clock finds it: its session and the original's take turns, on one thread.


SECONDS: Final = 1.0
LEAST_ROUNDS: Final = 3

UNITS: Final = ((1e6, "s"), (1e3, "ms"), (1.0, "us"), (1e-3, "ns"))
"""Microseconds from which a unit is used; less than the last one no call takes."""


@dataclass(frozen=True)
class MeasuredGain:
    """Microseconds of a call of each session, the least of some rounds."""

    original_us: float
    ours_us: float
    rounds: int

    @property
    def ratio(self) -> float:
        """Times as fast."""
        return self.original_us / self.ours_us

    def __str__(self) -> str:
        least, unit = next((least, unit) for least, unit in UNITS if self.original_us >= least)
        before, after = (float(f"{time / least:.3g}") for time in (self.original_us, self.ours_us))
        return f"{self.ratio:.1f}x measured in a session on one thread, {before:g} -> {after:g} {unit} a call"


def measured_gain(
    original: Path, optimized: onnx_ir.Model, feeds: Mapping[str, Any], seconds: float = SECONDS
) -> MeasuredGain:
    """Return the times of both models on the same inputs, as far as so many seconds go."""
    with loadable(optimized) as source:
        before = onnxruntime.InferenceSession(str(original), _options(), providers=["CPUExecutionProvider"])
        sessions = (before, session(source, _options()))
        least = [float("inf")] * len(sessions)
        start, rounds = time.perf_counter(), 0
        while rounds < LEAST_ROUNDS or time.perf_counter() - start < seconds:
            for index, each in enumerate(sessions):
                begun = time.perf_counter()
                each.run(None, feeds)
                least[index] = min(least[index], time.perf_counter() - begun)
            rounds += 1
    return MeasuredGain(1e6 * least[0], 1e6 * least[1], rounds)


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options


MOST_LEFT: Final = 8
"""Lines about layers that stay as they are, unless all are asked for."""


@dataclass(frozen=True)
class OutputFiles:
    """The files that `optimize` writes: the model, maybe with its weights beside it, a report, a native library."""

    model: Path
    external_data: bool | None
    report: Path | None
    library: bool
    architecture: str = ""
    """The architecture that the library is for, where it is not this machine's."""


@dataclass(frozen=True)
class OptimizeRequest:
    """A model to optimize, and where it goes."""

    source: Path
    options: Options
    files: OutputFiles
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Heights and widths that all images have, by name."""


@dataclass(frozen=True)
class CompileRequest:
    """A model to compile, for some CPU or for this one, also into the file `output`."""

    source: Path
    options: Options
    target: CpuTarget | None
    tune: bool
    output: Path | None
    report: Path | None
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Heights and widths that all images have, by name."""


def compile_and_print(request: CompileRequest, inspection: Inspection) -> None:
    """Compile a model into the user's cache and show its layers, or print its module after a stage.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: there is no such pass or stage, no such size of an image, or this machine cannot measure for the
            target.
    """
    options, tune = inspection.watching(request.options), request.tune
    source = with_sizes(request.source, request.sizes)
    target = request.target
    if inspection.stage:
        on_target = on_machine(options, target, default_folder(), tune=tune)
        inspection.print_stage(source, on_target, output=request.output, foreign="refuse")
        return
    with working("compiling", request.source, shown=inspection == NOTHING_SHOWN):
        artefact = native_code(source, options, target=target, tune=tune)
    if request.output is not None:
        write_artefact(request.output, artefact)
    print_layers(artefact.program.report)
    write_report(request.report, "compile", _layers(artefact.program.report))


def optimize_model(request: OptimizeRequest, plan: CheckPlan, inspection: Inspection = NOTHING_SHOWN) -> bool:
    """Write the optimized model and show what changed; return False, with nothing written, when a check fails.

    Raises:
        ValueError: there is no such pass or stage, no such size of an image, or a library was asked for and has no
            sparse network to run.
    """
    options = inspection.watching(request.options)
    source = with_sizes(request.source, request.sizes)
    if inspection.stage:
        inspection.print_stage(source, options)
        return True
    with working("optimizing", request.source, shown=inspection == NOTHING_SHOWN):
        result = optimized(source, options)
    original, files = read_model(source, any_version=True), request.files
    if files.library and not result.networks:
        raise ValueError(f"no library for {files.model}: {result.obstacle or 'target portable has no sparse networks'}")
    comparisons: list[Comparison] = []
    if plan.runs:
        with working("comparing", request.source):
            read_runnable_model(source, any_version=True)
            comparisons = compare_runs(
                plan, original, Oracle(request.source, exact=True), Oracle(result.model, exact=True).run
            )
            if result.networks:
                comparisons += compare_session(plan, request.source, original, result.model)
        console.print(comparison_table(comparisons))
        if not agree(comparisons):
            console.print(f"{files.model} is not written: the optimized model differs", highlight=False)
            return False
    measured = None
    if plan.runs and result.networks and not files.architecture:
        measured = measured_gain(request.source, result.model, next(iter(plan.feeds(original))))
    library = _written_library(request, result) if files.library else None
    held = [request.source, *(request.source.parent / name for name in files_of(original))]
    before = summary(original, held)  # it may be written over
    save_model(result.model, files.model, external_data=files.external_data)
    _show_optimized(request, before, Shown(result, comparisons, measured, library))
    return True


class Library(NamedTuple):
    """A library of native code: its file, its bytes, and the levels of CPUs that it has code for."""

    file: str
    bytes: int
    levels: tuple[str, ...]

    @override
    def __str__(self) -> str:
        return f"{self.file}: {self.bytes / 1e6:.1f} MB, code for {', '.join(self.levels)}"


def _written_library(request: OptimizeRequest, result: Optimized) -> Library:
    path = request.files.model.with_suffix(".so")
    with working("compiling the library of", request.source):
        levels = write_library(result.model, path, request.files.architecture)
    return Library(path.name, path.stat().st_size, levels)


class Shown(NamedTuple):
    """An optimized model, how far its outputs are from the original's, its gain where measured, its library if any."""

    result: Optimized
    comparisons: Sequence[Comparison]
    measured: MeasuredGain | None
    library: Library | None


def _show_optimized(request: OptimizeRequest, before: Mapping[str, int], shown: Shown) -> None:
    result, comparisons, measured, library = shown
    written = request.files.model
    data = written.with_name(f"{written.name}.data")
    after = summary(result.model, [written, *([data] if data.exists() else [])])
    is_verbose = LOG.isEnabledFor(logging.INFO)
    if request.options.sparse_networks:
        print_gain(result)
    if measured is not None:
        console.print(str(measured), highlight=False)
    if result.quantized:
        _print_precision(result.quantized, is_verbose=is_verbose)
    console.print(summary_table(before, after))
    if is_verbose:
        console.print(layer_tables(result.report))
    if library is not None:
        console.print(str(library), highlight=False)
    if result.splits:
        console.print(split_table(result.splits))
    if result.networks and is_verbose:
        console.print(network_table(result.networks))
    if request.files.report is not None:
        content: dict[str, object] = {
            "modified": result.modified,
            "before": before,
            "after": after,
            "obstacle": result.obstacle,
            "quantized": result.quantized,
        }
        layers, outputs = [asdict(layer) for layer in result.report], [asdict(one) for one in comparisons]
        networks, splits = [asdict(network) for network in result.networks], [asdict(split) for split in result.splits]
        content |= {"layers": layers, "networks": networks, "splits": splits, "outputs": outputs}
        content["placement"] = None if result.placement is None else asdict(result.placement)
        content["predicted"] = None if result.gain is None else asdict(result.gain) | {"ratio": result.gain.ratio}
        content["measured"] = None if measured is None else asdict(measured) | {"ratio": measured.ratio}
        content["library"] = None if library is None else library._asdict()
        write_report(request.files.report, "optimize", content)


def _print_precision(text: str, *, is_verbose: bool) -> None:
    """Show how many layers compute with fewer bits, and below it those that do not."""
    some, *left = text.split("; ")
    console.print(some, highlight=False)
    shown_ones = left if is_verbose or len(left) <= MOST_LEFT else left[: MOST_LEFT - 1]
    for reason in shown_ones:
        console.print(indent(fill(reason, console.width - 2), "  "), highlight=False)
    if len(shown_ones) < len(left):
        console.print(f"  and {len(left) - len(shown_ones)} more, which --verbose names", highlight=False)


def tune_and_print(model: Path | None, seconds: float, report: Path | None) -> None:
    """Measure this machine, then the kernels of a model; show what was found, and report it.

    Raises:
        ModelError: the model is unreadable.
        ValueError: the seconds are negative or endless.
    """
    folder = default_folder()
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"expected 0 seconds or more to tune, got {seconds}")
    module = None
    if model is not None:
        with working("reading", model):
            module = build(model, Options(), until="simplify", foreign="keep")
    with working("measuring this machine"):
        machine = calibrate(folder)
    console.print(machine_line(machine), highlight=False)
    content: dict[str, object] = {"machine": asdict(machine)}
    if module is not None:
        options = Options(tuning=Tuning.on(host_target(), folder, seconds))
        with working("measuring kernels of", model):
            run_stages(module, options, after="simplify", until=last_stage(module))
        print_layers(module_report(module))
        content |= _layers(module_report(module))
    write_report(report, "tune", content)


def _layers(report: Report) -> dict[str, object]:
    return {
        "layers": [asdict(layer) for layer in report],
        "neuron_order": report.neuron_order,
        "schedule_search": report.schedule_search,
    }


def summary(model: onnx_ir.Model, files: Sequence[Path]) -> dict[str, int]:
    """Return the numbers of nodes, stored weights and bytes of a model that lies in some files."""
    constants = {name: value.const_value for name, value in model.graph.initializers.items()}
    tensors = [
        tensor for name, tensor in constants.items() if tensor is not None and _holds_weights(name, tensor, constants)
    ]
    return {
        "nodes": len(model.graph),
        "weights": sum(tensor.size for tensor in tensors),
        "weights that are not zero": sum(int(np.count_nonzero(tensor.numpy())) for tensor in tensors),
        "bytes on disk": sum(file.stat().st_size for file in files),
    }


def _holds_weights(name: str, tensor: onnx_ir.TensorProtocol, names: Container[str]) -> bool:
    """Return whether a constant is made of weights: bytes are, where they are no list of gaps or zero points."""
    is_bytes = tensor.dtype in (onnx_ir.DataType.INT8, onnx_ir.DataType.UINT8)
    has_gaps = ".values" in name and name.replace(".values", ".gaps") in names
    return tensor.dtype.is_floating_point() or (is_bytes and (has_gaps or len(tensor.shape) > 1))
