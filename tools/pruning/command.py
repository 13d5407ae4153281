"""The command `prune`: reads data, shows what is done, writes the model last."""

import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final, NamedTuple

from rich.table import Table

from ...foundation.atomic_files import write_text
from ...pruning.options import PruneOptions
from ...pruning.prune import pruned
from ...pruning.report import Pruned, PruneReport
from ...verification.feeds import arrays_of
from ..console.console import console
from ..console.progress_bar import progress_bar
from ..explain.page.markup import byte_text
from ..json_reports import write_report
from .page import prune_page

UNITS: Final = {"ms": 1.0, "us": 1e-3, "s": 1e3}


def milliseconds(text: str) -> float:
    """Return the milliseconds of a time such as `3ms` or `250us`.

    Raises:
        ValueError: it is none.
    """
    for unit, factor in UNITS.items():
        number = text.strip().removesuffix(unit)
        if number != text.strip():
            try:
                return factor * float(number)
            except ValueError:
                continue
    raise ValueError(f"time is {text!r}, expected one such as 3ms, 250us or 0.1s")


class PruneFiles(NamedTuple):
    """Files that are read and written, and the name of the array that is no input but labels."""

    model: Path
    data: Path
    output: Path
    report: Path | None
    labels: str | None


def prune_and_print(files: PruneFiles, options: PruneOptions) -> None:
    """Prune a model, show its layers, and write it.

    Raises:
        ModelError: the model is unreadable, or has no layer to prune.
        ValueError: the data or the options do not fit.
        OSError: a file cannot be read or written.
    """
    feeds = arrays_of(files.data)
    if files.labels is not None:
        if files.labels not in feeds:
            raise ValueError(f"the data has no array {files.labels!r} of labels, it holds {', '.join(feeds) or 'none'}")
        options = replace(options, labels=feeds.pop(files.labels))
    with progress_bar() as watch:
        result = pruned(files.model, feeds, options, watch)
    result.save(files.output)
    report = result.report
    console.print(str(report), highlight=False)
    if report.estimate.caution:
        console.print(f"warning: {report.estimate.caution}", highlight=False)
    console.print(
        f"{byte_text(4 * report.parameters)} of weights -> {byte_text(report.bytes)} that kernels read; quality a "
        f"million weights {report.dense_efficiency:.3g} -> {report.parameter_efficiency:.3g}",
        highlight=False,
    )
    console.print(_table(report))
    if report.obstacle:
        console.print(report.obstacle, highlight=False)
    if report.measured.speedup < 1:
        console.print("slower than the dense model, which is as good: ask for a speedup, or for more zeros")
    console.print(_next_step(files.output, options.precision), highlight=False, soft_wrap=True)
    if files.report is not None and options.compares:
        write_text(files.report, prune_page(files.model.name, report, f"redpebble {shlex.join(sys.argv[1:])}"))
    else:
        write_report(files.report, "prune", _content(result, options))


def _next_step(output: Path, precision: str) -> str:
    """Return where the file is fast, and what makes it small: zeros are stored until it is optimized."""
    if precision == "int8":
        return f"fast and small as it is, in redpebble.session({str(output)!r})"
    small = output.with_name(f"{output.stem}-optimized{output.suffix}")
    return (
        f"fast in redpebble.session({str(output)!r}); the file holds the zeros, too, and is as large as before until\n"
        f"  {shlex.join(['redpebble', 'optimize', str(output), str(small)])}"
    )


def _table(report: PruneReport) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("layer", overflow="fold")
    for header in ("inputs", "outputs", "density", "loss alone", "dense us", "predicted us"):
        table.add_column(header, justify="right", no_wrap=True)
    for layer in report.layers:
        table.add_row(
            layer.name,
            f"{layer.inputs:,}",
            f"{layer.outputs:,}",
            f"{layer.density:.3f}",
            f"{layer.loss:.2%}",
            f"{layer.dense_us:.3g}",
            f"{layer.predicted_us:.3g}",
        )
    return table


def _content(result: Pruned, options: PruneOptions) -> dict[str, object]:
    report = result.report
    return {
        "goal": {options.goal.measure: options.goal.value},
        "structure": str(options.structure),
        "method": str(options.method),
        "precision": options.precision,
        "seed": options.seed,
        "finetune": {"seconds": options.finetune, "stages": options.stages, "labels": options.labels is not None},
        "layers": [asdict(layer) | {"density": layer.density} for layer in report.layers],
        "loss": report.loss,
        "loss_interval": report.estimate.interval,
        "loss_samples": report.estimate.samples,
        "loss_folds": report.estimate.folds,
        "caution": report.estimate.caution,
        "obstacle": report.obstacle,
        "inputs": report.inputs,
        "quality": report.quality,
        "rows": report.rows,
        "threads": report.threads,
        "original_us": report.measured.original_us,
        "pruned_us": report.measured.pruned_us,
        "speedup": report.measured.speedup,
        "predicted_us": report.predicted_us,
        "parameters": report.parameters,
        "connections": report.connections,
        "bytes": report.bytes,
        "parameter_efficiency": report.parameter_efficiency,
        "dense_efficiency": report.dense_efficiency,
    }
