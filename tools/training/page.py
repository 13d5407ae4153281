"""A training as one HTML page: what it gained, and the loss of each epoch."""

from html import escape

from ...training.finetune import FinetuneReport
from ..explain.page.charts import Axes, Dot, Line, scatter_chart
from ..explain.page.markup import Card, cards, count_text, section
from ..explain.page.style import STYLE


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
