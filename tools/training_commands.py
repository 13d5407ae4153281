"""The command `finetune`: reads samples, shows how far it is, writes the model last."""

import shlex
import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from ..foundation.atomic_files import write_text
from ..foundation.errors import RedpebbleError
from ..passes.training.losses import LossName
from ..training.finetune import FinetuneReport, finetuned, teacher_of
from ..training.optimizers import OptimizerName
from ..training.options import Exchange, FinetuneOptions, Schedule
from ..training.replicas import Alone, Replicas
from ..training.samples import Samples, Task
from ..verification.feeds import arrays_of
from .console.console import console, progress_console
from .console.progress_bar import progress_bar
from .explain.page.charts import Axes, Dot, Line, scatter_chart
from .explain.page.markup import Card, cards, count_text, section
from .explain.page.style import STYLE
from .json_reports import write_report

# A training as one HTML page: what it gained, and the loss of each epoch.


def finetune_page(name: str, report: FinetuneReport, command: str) -> str:
    """Return the page of a model with this name."""
    title = escape(f"{name}: trained")
    body = _head(name, report) + _curve(report)
    foot = f'<p class="note">{escape(command)}</p>'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f"<body><main>{body}{foot}</main></body></html>\n"
    )


def _head(name: str, report: FinetuneReport) -> str:
    before, kept = report.before, report.kept
    shown = [
        Card("Loss", f"{kept.validation:.4g}", f"was {before.validation:.4g}, {report.options.loss}"),
        Card("Epochs", str(len(report.epochs)), f"best after {report.best}"),
        Card("Time", f"{sum(epoch.seconds for epoch in report.epochs):.1f} s", f"{report.options.optimizer}"),
        Card("Values", count_text(report.values), f"of {len(report.initializers)} initializers; zeros stay zeros"),
    ]
    if before.hits is not None and kept.hits is not None:
        shown.insert(1, Card("Classes", f"{100 * kept.hits:.2f} %", f"was {100 * before.hits:.2f} %"))
    return f'<div><h1>{escape(name)}</h1><p class="lead">{escape(str(report))}</p>{cards(shown)}</div>'


def _curve(report: FinetuneReport) -> str:
    numbers = list(range(1, len(report.epochs) + 1))
    lines = [
        Line("training", [float(number) for number in numbers], [epoch.loss for epoch in report.epochs], "c0"),
        Line(
            "validation",
            [0.0, *map(float, numbers)],
            [report.before.validation, *(epoch.validation for epoch in report.epochs)],
            "c1",
        ),
    ]
    text = f"kept: {report.kept.validation:.4g}"
    dots = [Dot(text, float(report.best), report.kept.validation, "kept")]
    chart = scatter_chart(dots, lines, Axes("epochs", report.options.loss))
    return section("loss", "Loss", "Means over samples; training is measured while weights still change.", chart)


Arrays = dict[str, NDArray[Any]]


class FinetuneFiles(NamedTuple):
    """Files that are read and written, and the name of the array that is no input but labels."""

    model: Path
    data: Path
    output: Path
    validate: Path | None
    teacher: Path | None
    labels: str
    report: Path | None


class Rates(NamedTuple):
    """The options of `FinetuneOptions` but the loss."""

    optimizer: OptimizerName
    epochs: int
    batch: int
    rate: float
    schedule: Schedule
    warm_up: int
    patience: int
    seed: int
    threads: int
    exchange: Exchange
    sync: int
    sync_of: tuple[str, ...]
    bits: int


def finetune_and_print(files: FinetuneFiles, loss: str | None, rates: Rates, *, replicated: bool = False) -> None:
    """Train a model, show its epochs, and write it; of replicas, that of rank 0 does.

    Raises:
        ModelError: the model is unreadable, or something in it has no derivative.
        ValueError: the data or the options do not fit.
        OSError: a file cannot be read or written.
    """
    replicas: Replicas = _replicas() if replicated else Alone()
    if not replicas.rank:
        _finetune_and_print(files, loss, rates, replicas)
        return
    console.quiet = progress_console.quiet = True
    try:
        _finetune_and_print(files, loss, rates, replicas)
    except (ValueError, RedpebbleError, OSError):
        # rank 0 meets the same, and says it
        raise SystemExit(2) from None


def task_of(files: FinetuneFiles, loss: str | None, rates: Rates) -> Task:
    """Return the settings from files and options.

    Raises:
        ModelError: the teacher is unreadable, or something in it is not covered.
        ValueError: the data or the options do not fit.
        OSError: a file cannot be read.
    """
    if bool(files.labels) == (files.teacher is not None):
        raise ValueError("expected one of --labels and --teacher")
    arrays = mapped_arrays(files.data)
    labels = _labels_of(arrays, files.labels, files.data)
    options = FinetuneOptions(_loss_name(loss, labels), *rates)
    teacher = None if files.teacher is None else teacher_of(files.teacher, options.loss)
    validation = None
    if files.validate is not None:
        held_out = mapped_arrays(files.validate)
        wanted = _labels_of(held_out, files.labels, files.validate)
        validation = Samples(held_out, wanted, teacher)
    return Task(Samples(arrays, labels, teacher), validation, options)


def _finetune_and_print(files: FinetuneFiles, loss: str | None, rates: Rates, replicas: Replicas) -> None:
    task = task_of(files, loss, rates)
    with progress_bar() as watch:
        result = finetuned(files.model, task.samples, task.options, task.validation, watch, replicas)
    if replicas.rank:
        return
    result.save(files.output)
    sent = f"{replicas.size} replicas, {replicas.bytes_sent:,} bytes sent by each" if replicas.size > 1 else ""
    counts = {"replicas": replicas.size, "bytes_sent": replicas.bytes_sent}
    show_training(files, result.report, sent, counts)


def show_training(files: FinetuneFiles, report: FinetuneReport, sent: str, counts: Mapping[str, object]) -> None:
    """Show how training went, what was sent for it, and write the report.

    Raises:
        OSError: it cannot be written.
    """
    console.print(str(report), highlight=False)
    console.print(_table(report))
    if sent:
        console.print(sent, highlight=False)
    if files.report is not None and files.report.suffix == ".html":
        write_text(files.report, finetune_page(files.model.name, report, f"redpebble {shlex.join(sys.argv[1:])}"))
    else:
        write_report(files.report, "finetune", _content(report) | dict(counts))


def _replicas() -> Replicas:
    from ..distributed.run.replicas import MpiReplicas

    return MpiReplicas.of_world()


def mapped_arrays(path: Path) -> Arrays:
    """Return arrays by name: those of an .npz, or maps of the .npy of a folder.

    Raises:
        ValueError: something is no array.
        OSError: something cannot be read.
    """
    if not path.is_dir():
        found = arrays_of(path)
        if not found:
            raise ValueError(f"{path}: expected an .npz or a folder of .npy, got no arrays")
        return found
    arrays: Arrays = {}
    for file in sorted(path.glob("*.npy")):
        try:
            arrays[file.stem] = np.load(file, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{file} holds no array: {error}") from None
    if not arrays:
        raise ValueError(f"{path}: expected an .npz or a folder of .npy, got no arrays")
    return arrays


def _labels_of(arrays: Arrays, name: str, path: Path) -> NDArray[Any] | None:
    if not name:
        return None
    if name not in arrays:
        raise ValueError(f"{path} has no array {name!r} of labels, it holds {', '.join(arrays)}")
    return arrays.pop(name)


def _loss_name(name: str | None, labels: NDArray[Any] | None) -> LossName:
    """Return the loss; distances to a teacher are mean squares."""
    match name:
        case None:
            return "cross-entropy" if labels is not None and labels.ndim == 1 and labels.dtype.kind in "iu" else "mse"
        case "cross-entropy" | "crps":
            return name
        case _:
            return "mse"


def _table(report: FinetuneReport) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    classes = report.before.hits is not None
    for header in ("epoch", "loss", "validation", *(("classes",) if classes else ()), "seconds"):
        table.add_column(header, justify="right", no_wrap=True)
    for number, epoch in enumerate((report.before, *report.epochs)):
        share = () if epoch.hits is None else (f"{100 * epoch.hits:.2f} %",)
        loss = f"{epoch.loss:.4g}" if number else ""
        table.add_row(
            f"{number}{' *' if number == report.best else ''}",
            loss,
            f"{epoch.validation:.4g}",
            *share,
            f"{epoch.seconds:.2f}",
        )
    table.caption = "* kept"
    table.caption_justify = "left"
    return table


def _content(report: FinetuneReport) -> dict[str, object]:
    return {
        "loss": report.options.loss,
        "epochs": [
            {"loss": epoch.loss, "validation": epoch.validation, "hits": epoch.hits, "seconds": epoch.seconds}
            for epoch in report.epochs
        ],
        "before": {"validation": report.before.validation, "hits": report.before.hits},
        "best": report.best,
        "values": report.values,
        "initializers": list(report.initializers),
        "interrupted": report.interrupted,
    }
