"""The command `distil`: reads samples, shows how far it is, writes the model last."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table

from ..verification.feeds import arrays_of
from .console.console import console
from .json_reports import write_report

if TYPE_CHECKING:
    from ..pytorch.distil_models import DistilledReport


class DistilFiles(NamedTuple):
    """Files that are read and written, and the name of the array that is no input but labels."""

    model: Path
    data: Path
    output: Path
    teacher: Path | None
    validate: Path | None
    labels: str | None
    checkpoint: Path | None
    report: Path | None


class DistilNumbers(NamedTuple):
    """The options of a training."""

    metric: str
    steps: int | None
    seconds: float | None
    epochs: int
    batch: int
    rate: float
    patience: int | None
    rows: int | None
    threads: int
    seed: int


def distil_and_print(files: DistilFiles, losses: list[str], numbers: DistilNumbers) -> None:
    """Train a model, show its course, and write it.

    Raises:
        ModelError: a model is unreadable, or something in it cannot be trained through.
        ValueError: the data or the options do not fit, or torch is missing.
        OSError: a file cannot be read or written.
    """
    try:
        from ..pytorch.distil_models import Length, distil_model, set_threads
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ValueError("expected torch to train with, got none: pip install 'redpebble[torch]'") from None
    set_threads(numbers.threads)
    result = distil_model(
        files.model,
        files.teacher,
        arrays_of(files.data),
        validate=None if files.validate is None else arrays_of(files.validate),
        labels=files.labels,
        losses=[_weighed(one) for one in losses] or None,
        metric=numbers.metric,
        length=Length(numbers.steps, numbers.seconds, numbers.epochs),
        batch=numbers.batch,
        rate=numbers.rate,
        patience=numbers.patience,
        checkpoint=files.checkpoint,
        rows=numbers.rows,
        seed=numbers.seed,
    )
    result.save(files.output)
    report = result.report
    console.print(str(report), highlight=False)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for header in ("step", "loss", *report.after, "seconds"):
        table.add_column(header, justify="right", no_wrap=True)
    for point in report.history.points:
        if point.quality:
            shown = (f"{point.quality.get(name, float('nan')):.4g}" for name in report.after)
            mark = " *" if point.step == report.history.kept else ""
            table.add_row(f"{point.step}{mark}", f"{point.loss:.4g}", *shown, f"{point.seconds:.1f}")
    table.caption, table.caption_justify = "* kept; quality of torch while it trains", "left"
    console.print(table)
    console.print(
        f"{report.connections:,} of {report.parameters:,} weights of layers are left; {next(iter(report.after))} a "
        f"million weights {report.dense_efficiency:.3g} -> {report.parameter_efficiency:.3g}",
        highlight=False,
    )
    write_report(files.report, "distil", _content(report))


def _weighed(text: str) -> str | tuple[str, float]:
    """Return a loss, and its weight where there is one behind a colon.

    Raises:
        ValueError: the weight is no number.
    """
    name, colon, number = text.partition(":")
    if not colon:
        return name
    try:
        return name, float(number)
    except ValueError:
        raise ValueError(f"loss: expected one such as hidden:0.5, got {text!r}") from None


def _content(report: "DistilledReport") -> dict[str, object]:
    history = report.history
    return {
        "before": dict(report.before),
        "after": dict(report.after),
        "teacher": dict(report.teacher),
        "held_out": report.is_held_out,
        "samples": report.samples,
        "points": [asdict(one) for one in history.points],
        "kept": history.kept,
        "steps": history.steps,
        "seconds": history.seconds,
        "stopped_early": history.stopped_early,
        "parameters": report.parameters,
        "connections": report.connections,
        "speedup": report.speedup,
        "difference": report.difference,
        "parameter_efficiency": report.parameter_efficiency,
        "dense_efficiency": report.dense_efficiency,
    }
