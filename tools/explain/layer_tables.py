"""Columns, cells and notes on linear layers, the same on a terminal and on a page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from ...dialect.reports.layer_numbers import DEPTH_FIRST
from ...dialect.reports.layer_report import LayerReport, Report

MOVED: Final = "predicted KB"
PREDICTED: Final = "predicted us"
MEASURED: Final = "measured us"

LINED: Final = ("kernel", MOVED, PREDICTED, MEASURED)
"""Columns of which each line belongs to the line of the kernel beside it."""

SENTENCES: Final = ("structure", "why")
"""Columns that are as wide as there is room for."""

WORDS: Final = ("layer", "format", *LINED, *SENTENCES)
"""Columns that are read as words are; the others are numbers."""

TITLE: Final = (
    "at 8 to 16: in tiles of 8 to 16 rows of the batch; numbers are of one tile, without the transposition of its rows "
    "into columns and back"
)

TOGETHER: Final = (
    f"{DEPTH_FIRST}: layers that run together; their time is divided by connections, and only values that pass the "
    "second-level cache count"
)
AT_MOST: Final = (
    "<=: of a tile of live rows; rows of zeros are dropped first, so the number of tiles depends on the data. Finding "
    "and compacting the live rows comes on top"
)


Columns = dict[str, list[list[str]]]
"""Columns of a table by their headers: for each row the lines of its cell."""


def layer_columns(layers: Sequence[LayerReport], *, moved: bool) -> Columns:
    """Return a table of layers and their times; with `moved` also the kilobytes that tiles read and write."""
    columns = {
        "layer": [[layer.name] for layer in layers],
        "inputs": [[f"{layer.inputs:,}"] for layer in layers],
        "outputs": [[f"{layer.outputs:,}"] for layer in layers],
        "connections": [[f"{layer.connections:,}"] for layer in layers],
        "density": [[_share(layer.density)] for layer in layers],
        "format": [[layer.format] for layer in layers],
        "kernel": [[_used_at(family, widths) for family, widths in _runs(layer)] for layer in layers],
        MOVED: [_spans(layer, layer.predicted_bytes, 1e-3) for layer in layers],
        PREDICTED: [_spans(layer, layer.predicted_us) for layer in layers],
        MEASURED: [_spans(layer, layer.measured_us) for layer in layers],
    }
    shown = {MOVED: moved, MEASURED: any(layer.measured_us for layer in layers)}
    return {header: cells for header, cells in columns.items() if shown.get(header, True)}


def together(layers: Sequence[LayerReport]) -> list[LayerReport]:
    """Return one line for all layers of the same sizes, format and kernels, with their total time."""
    alike = dict[tuple[object, ...], list[LayerReport]]()
    for layer in layers:
        key = (layer.inputs, layer.outputs, layer.format, *layer.families.items(), *layer.at_most)
        alike.setdefault(key, []).append(layer)
    return [_one_of(same) for same in alike.values()]


def _one_of(same: Sequence[LayerReport]) -> LayerReport:
    first, count = same[0], len(same)
    if count == 1:
        return first
    return replace(
        first,
        name=f"{count} layers like {first.name}",
        connections=sum(layer.connections for layer in same),
        density=sum(layer.density for layer in same) / count,
        predicted_us=_sums([layer.predicted_us for layer in same]),
        measured_us=_sums([layer.measured_us for layer in same]),
        predicted_bytes=_sums([layer.predicted_bytes for layer in same]),
    )


def _sums(numbers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    widths = [width for width in numbers[0] if all(width in one for one in numbers)]
    return {width: sum(one[width] for one in numbers) for width in widths}


def reason_columns(layers: Sequence[LayerReport]) -> Columns:
    """Return the structure found in layers, and the reasons for their kernels."""
    columns = {
        "layer": [[layer.name] for layer in layers],
        "structure": [layer.structure.splitlines() for layer in layers],
        "why": [layer.reason.split("; ") for layer in layers],
    }
    return columns if any(map(any, columns["structure"])) else {"layer": columns["layer"], "why": columns["why"]}


def report_notes(report: Report) -> list[str]:
    """Return notes on all layers together, and on how to read the numbers."""
    notes = [f"order of neurons: {report.neuron_order}"] if report.neuron_order else []
    if report.schedule_search:
        notes.append(f"schedule of layers, annealed: {report.schedule_search}")
    if any(DEPTH_FIRST in layer.families.values() for layer in report):
        notes.append(TOGETHER)
    if any(layer.at_most for layer in report):
        notes.append(AT_MOST)
    return notes


def _runs(layer: LayerReport) -> list[tuple[str, list[str]]]:
    """Return the families of a layer in turn, each with the widths at which it is used."""
    runs = groupby(layer.families.items(), key=lambda item: item[1])
    return [(family, [width for width, _ in items]) for family, items in runs]


def _used_at(family: str, widths: Sequence[str]) -> str:
    return f"{family} at {' to '.join(dict.fromkeys((widths[0], widths[-1])))}"


def _spans(layer: LayerReport, numbers: Mapping[str, float], unit: float = 1.0) -> list[str]:
    """Return for each family the numbers from the first width to the last at which it is used."""
    return [
        _span(widths, {width: unit * number for width, number in numbers.items()}, layer.at_most)
        for _, widths in _runs(layer)
    ]


def _span(widths: Sequence[str], numbers: Mapping[str, float], at_most: Sequence[str]) -> str:
    known = [width for width in widths if width in numbers]
    if len(known) == 1 < len(widths):
        return f"{_bound_mark(known[0], at_most)}{_short(numbers[known[0]])} at {known[0]}"
    falls = len(known) > 1 and numbers[known[-1]] < numbers[known[0]]
    ends = zip((widths[0], widths[-1]), (known[0], known[-1]), strict=True) if known else ()
    texts = [
        f"{_bound_mark(width, at_most)}{_short(numbers[width])}{'' if width == end and not falls else f' at {width}'}"
        for end, width in ends
    ]
    # what falls is no range: a tile of more rows was faster
    return (", " if falls else " to ").join(dict.fromkeys(texts))


def _bound_mark(width: str, at_most: Sequence[str]) -> str:
    return "<= " if width in at_most else ""


def _share(number: float) -> str:
    """Return three decimals, and one digit of what would be nothing then."""
    return f"{number:.3f}" if number >= 0.0005 or number == 0 else f"{number:.1g}"


def _short(number: float) -> str:
    """Return three digits, and all of a large number."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"
