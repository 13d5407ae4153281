"""The command `prune`: reads data, shows what is done, writes the model last."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from numpy.typing import NDArray
from rich.table import Table

from ..foundation.atomic_files import write_text
from ..pruning.metrics import Metric, metric_of
from ..pruning.options import PruneOptions
from ..pruning.prune import pruned
from ..pruning.report import Pruned, PrunedLayer, PruneReport
from ..pruning.task_quality import TaskQuality, task_quality
from ..verification.feeds import arrays_of
from .console.console import console
from .console.progress_bar import progress_bar
from .explain.page.charts import Axes, Dot, Line, scatter_chart
from .explain.page.markup import Card, Column, Row, byte_text, cards, count_text, ratio_text, section, table, time_text
from .explain.page.style import STYLE
from .json_reports import write_report

# A pruned model as one HTML page: what it gained and lost, its layers, and quality against time.


Arrays = dict[str, NDArray[Any]]

STYLES: Final = ("c0", "c1", "c2", "c3", "c4")

COLUMNS: Final = (
    Column("layer", "word"),
    Column("size"),
    Column("density"),
    Column("loss alone"),
    Column("dense, predicted"),
    Column("pruned, predicted"),
    Column("dense, measured"),
    Column("pruned, measured"),
)


def prune_page(name: str, report: PruneReport, command: str) -> str:
    """Return the page of a model with this name."""
    body = "".join([_head(name, report), _picture(report), _layers(report), _foot(command)])
    title = escape(f"{name}: pruned")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f"<body><main>{body}</main></body></html>\n"
    )


def _head(name: str, report: PruneReport) -> str:
    times = report.measured
    predicted = "" if report.predicted_us is None else f", {time_text(report.predicted_us)} predicted"
    shown = [
        Card(
            "Time",
            ratio_text(times.speedup),
            f"{time_text(times.original_us)} → {time_text(times.pruned_us)} measured{predicted}",
        ),
        Card("Lost", f"{100 * report.loss:.2f} %", f"of the outputs' variance, {report.estimate.range_text}"),
        Card(
            "Weights",
            count_text(report.connections),
            f"{100 * report.density:.3g} % of {count_text(report.parameters)}",
        ),
        Card(
            "Bytes of weights", byte_text(report.bytes), f"that kernels read, were {byte_text(4 * report.parameters)}"
        ),
        Card(
            "Parameter efficiency",
            f"{report.parameter_efficiency:.3g}",
            f"quality a million weights, {report.dense_efficiency:.3g} dense",
        ),
    ]
    threads = f"{report.threads} thread{'' if report.threads == 1 else 's'}"
    lead = (
        f"{ratio_text(times.speedup)} as fast as onnxruntime runs the original, for {report.inputs} on {threads}: "
        f"{report.estimate}."
    )
    said = "".join(f"<p>{escape(text)}.</p>" for text in (report.estimate.caution, report.obstacle) if text)
    return f'<div><h1>{escape(name)}</h1><p class="lead">{escape(lead)}</p>{cards(shown)}{said}</div>'


def _picture(report: PruneReport) -> str:
    if not report.trials:
        return ""
    lines: list[Line] = []
    dots = [
        Dot("dense", report.measured.original_us / 1000, 1.0, "dense"),
        Dot(
            f"this model: {time_text(report.measured.pruned_us)}, {report.loss:.2%} lost",
            report.measured.pruned_us / 1000,
            report.quality,
            "this model",
        ),
    ]
    for number, method in enumerate(dict.fromkeys(trial.method for trial in report.trials)):
        points = sorted((one for one in report.trials if one.method == method), key=lambda one: one.us)
        lines.append(
            Line(
                method, [one.us / 1000 for one in points], [one.quality for one in points], STYLES[number % len(STYLES)]
            )
        )
        dots += [
            Dot(
                f"{method} at density {one.density:g}: {time_text(one.us)}, {1 - one.quality:.2%} lost",
                one.us / 1000,
                one.quality,
            )
            for one in points
        ]
    note = (
        "Quality is the share of the outputs' variance that is left. Methods prune all layers "
        "alike, without allocation; this model has a density for each layer where its goal is a time or a loss."
    )
    axes = Axes("milliseconds of a call, measured", "quality")
    return section("quality", "Quality against time", note, scatter_chart(dots, lines, axes))


def _layers(report: PruneReport) -> str:
    rows = [_row(layer) for layer in report.layers]
    note = (
        "Loss alone is the share of the square of a layer's own outputs that it loses. Predicted times are those of "
        "the kernels that optimize chooses; measured ones are those of layers alone in onnxruntime, calls included."
    )
    return section("layers", "Layers", note, table("Layers that were weighed", COLUMNS, rows))


def _row(layer: PrunedLayer) -> Row:
    measured = layer.measured
    cells = (
        layer.name,
        f"{layer.inputs:,} x {layer.outputs:,}",
        f"{layer.density:.3f}",
        f"{layer.loss:.2%}",
        time_text(layer.dense_us),
        time_text(layer.predicted_us),
        "" if measured is None else time_text(measured.original_us),
        "" if measured is None else time_text(measured.pruned_us),
    )
    return Row("", cells)


def _foot(command: str) -> str:
    return f"<footer><p><code>{escape(command)}</code></p></footer>"


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
    raise ValueError(f"time: expected one such as 3ms, 250us or 0.1s, got {text!r}")


class PruneFiles(NamedTuple):
    """Files that are read and written, and the name of the array that is no input but labels."""

    model: Path
    data: Path
    output: Path
    report: Path | None
    labels: str | None
    metric: str | None = None
    validate: Path | None = None
    """Samples that the metric is of; those of the data where there are no others."""


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
        labels = feeds.pop(files.labels)
        # a network that is not trained has labels for the metric alone
        options = replace(options, labels=labels) if options.finetune or files.metric is None else options
    else:
        labels = None
    metric = None if files.metric is None else metric_of(files.metric)
    with progress_bar() as watch:
        result = pruned(files.model, feeds, options, watch)
    result.save(files.output)
    task = None if metric is None else _task_quality(files, result, feeds, labels, metric)
    if task is None:
        show_pruned(files, result, options)
        return
    fitted = "" if files.validate is not None else ", which weights were fitted to: --validate takes others"
    measured = {"task": {"dense": dict(task.dense), "pruned": dict(task.sparse)}}
    show_pruned(files, result, options, f"{task}{fitted}", measured)


def show_pruned(
    files: PruneFiles,
    result: Pruned,
    options: PruneOptions,
    quality: str = "",
    more: Mapping[str, object] | None = None,
) -> None:
    """Print the report of a pruned model with a line on its quality, and write it where it is wanted, `more` in it."""
    report = result.report
    console.print(str(report), highlight=False)
    is_folder = files.model.is_dir()
    # a folder is judged by its texts: of few windows they have many tokens
    if report.estimate.caution and not is_folder:
        console.print(f"warning: {report.estimate.caution}", highlight=False)
    if options.precision != "int4":
        console.print(
            f"{byte_text(4 * report.parameters)} of weights -> {byte_text(report.bytes)} that kernels read; quality a "
            f"million weights {report.dense_efficiency:.3g} -> {report.parameter_efficiency:.3g}",
            highlight=False,
        )
    if quality:
        console.print(quality, highlight=False)
    console.print(_table(report))
    if report.obstacle:
        console.print(report.obstacle, highlight=False)
    if report.measured.speedup < 1:
        console.print("slower than the dense model, which is as good: ask for a speedup, or for more zeros")
    console.print(_next_step(files, options.precision), highlight=False, soft_wrap=True)
    if files.report is not None and options.compares:
        write_text(files.report, prune_page(files.model.name, report, f"redpebble {shlex.join(sys.argv[1:])}"))
    else:
        write_report(files.report, "prune", {**_content(result, options), **(more or {})})


def _task_quality(
    files: PruneFiles, result: Pruned, feeds: Arrays, labels: NDArray[Any] | None, metric: Metric
) -> TaskQuality:
    if files.validate is not None:
        feeds = arrays_of(files.validate)
        if files.labels is not None and files.labels not in feeds:
            raise ValueError(f"{files.validate} has no array {files.labels!r} of labels")
        labels = None if files.labels is None else feeds.pop(files.labels)
    return task_quality(files.model, result.model, feeds, labels, metric)


def _next_step(files: PruneFiles, precision: str) -> str:
    """Return where the file is fast, and what makes it small: zeros are stored until it is optimized."""
    output = files.output
    if files.model.is_dir():
        folder = output.parent
        command = ["redpebble", "optimize", str(folder), f"{folder}-fast", "--library"]
        return f"fast in onnxruntime-genai once it is optimized:\n  {shlex.join(command)}"
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
