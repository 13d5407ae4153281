"""A pruned model as one HTML page: what it gained and lost, its layers, and quality against time."""

from html import escape
from typing import Final

from ...pruning.report import PrunedLayer, PruneReport
from ..explain.page.charts import Axes, Dot, Line, scatter_chart
from ..explain.page.markup import (
    Card,
    Column,
    Row,
    byte_text,
    cards,
    count_text,
    ratio_text,
    section,
    table,
    time_text,
)
from ..explain.page.style import STYLE

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
