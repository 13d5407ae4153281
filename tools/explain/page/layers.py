"""The parts of the page on linear layers: times, the roofline, the structure found, and reasons for the kernels."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from ....dialect.reports.layer_report import LayerReport
from ....kernels.machine import Machine
from ..layer_tables import report_notes
from ..lowering_levels import BATCHES
from ..story import LayerTime, Story, dense_gflops, short_names
from .charts import Axes, Dot, Line, scatter_chart
from .markup import Column, Row, section, table, time_text

SHOWN: Final = 24
"""Layers that are shown at once; more are there on request."""

NAMED: Final = 4
"""Layers that have names: dots of the roofline that take longest, and the first of those that are not shown."""


def of_batch(batch: int, content: str) -> str:
    """Return the content shown while this batch is chosen."""
    return f'<div class="of-{batch}">{content}</div>'


def time_section(story: Story) -> str:
    """Return the section on the times of layers."""
    clock = any(one.measured_us is not None for times in story.layer_times.values() for one in times)
    key = '<span class="key"><i class="time"></i>predicted</span>'
    key += '<span class="key"><i class="clock"></i>measured here</span>' if clock else ""
    note = (
        "Linear layers in the order of execution, each timed alone, with its weights in the memory that holds them in "
        "a run of the whole model."
    )
    bars = "".join(of_batch(batch, _bars(story.taken_times(batch))) for batch in BATCHES)
    return section("time", "Time by layer", note, f"<p>{key}</p>{bars}{_left_text(story.layer_times[BATCHES[0]])}")


def _left_text(times: Sequence[LayerTime]) -> str:
    """Return the names of layers that are not shown, as they stay with onnxruntime; nothing where there are none."""
    names = [f"{one.name}{'' if one.count == 1 else f' x {one.count}'}" for one in times if one.stays]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"<p>Not shown, as onnxruntime keeps them: {escape(', '.join(names[:NAMED]))}{more}.</p>" if names else ""


def _bars(times: Sequence[LayerTime]) -> str:
    longest = max((max(one.predicted_us, one.microseconds) for one in times), default=1.0) or 1.0
    total = sum(one.microseconds for one in times) or 1.0
    lines = [_bar(one, longest, total) for one in times]
    first = f'<ol class="times">{"".join(lines[:SHOWN])}</ol>'
    if len(lines) <= SHOWN:
        return first
    more = f'<ol class="times">{"".join(lines[SHOWN:])}</ol>'
    return f"{first}<details><summary>{len(lines) - SHOWN} more</summary>{more}</details>"


def _bar(one: LayerTime, longest: float, total: float) -> str:
    times = "" if one.count == 1 else f" x {one.count}"
    density = one.connections / max(1, one.count * one.inputs * one.outputs)
    size = f"{one.inputs:,} → {one.outputs:,}, {100 * density:.3g} % of the weights"
    clock = ""
    figures = time_text(one.predicted_us)
    if one.measured_us is not None:
        clock = f'<i class="clock" style="left:{100 * one.measured_us / longest:.1f}%"></i>'
        figures += f" / {time_text(one.measured_us)}"
    share = f"{100 * one.microseconds / total:.0f} %"
    return (
        f'<li title="{escape(one.full_name)}"><span class="layer">{escape(one.name)}{times}'
        f"<small>{escape(size)}, {one.rows:,} rows</small></span>"
        f'<span class="track"><i class="time" style="width:{100 * one.predicted_us / longest:.1f}%"></i>{clock}</span>'
        f'<span class="figures">{figures}<br>{share}</span></li>'
    )


def roofline_section(story: Story) -> str:
    """Return the section that compares the speed of layers with what the machine allows."""
    machine = story.machine
    note = (
        "A dot is a layer. The sloped roofs are what memory and the last-level cache deliver, for weights and values "
        f"that are moved once; layers whose weights stay in the second-level cache, {machine.l2_bytes >> 10} KiB, may "
        "rise above these. The flat roof is our dense kernel with all of its operands in the cache."
    )
    charts = "".join(of_batch(batch, _roofline(story.taken_times(batch), machine)) for batch in BATCHES)
    return section("roofline", "Roofline", note, charts)


def _roofline(times: Sequence[LayerTime], machine: Machine) -> str:
    known = [one for one in times if one.microseconds and one.moved_bytes and one.operations]
    if not known:
        return "<p>No layer has a predicted time.</p>"
    slowest = sorted(known, key=lambda one: -one.microseconds)[:NAMED]
    dots = [
        Dot(
            f"{one.full_name}: {time_text(one.microseconds)}",
            one.operations / one.moved_bytes,
            1e-3 * one.operations / one.microseconds,
            one.name if one in slowest else "",
        )
        for one in known
    ]
    xs, top = [dot.x for dot in dots], dense_gflops(machine)
    left, right = min(xs) / 2, max(xs) * 2
    roofs = [
        _roof("memory", 1 / machine.dram_ns, (left, right), top),
        _roof("last-level cache", 1 / machine.l3_ns, (left, right), top),
        Line("our dense kernel", [left, right], [top, top], "roof"),
    ]
    axes = Axes("operations a byte", "1e9 operations a second", log_x=True, log_y=True)
    return scatter_chart(dots, [roof for roof in roofs if roof is not None], axes)


def _roof(name: str, speed: float, ends: tuple[float, float], top: float) -> Line | None:
    """Return the line of a memory that delivers `speed` bytes a nanosecond, up to the speed `top`."""
    left, right = ends
    if speed * left >= top:
        return None
    corner = min(right, top / speed)
    return Line(f"{name}, {speed:.0f} GB/s", [left, corner], [speed * left, speed * corner], "roof")


def structure_section(story: Story) -> str:
    """Return the section on what was found in layers, and why their kernels were chosen."""
    layers = story.taken
    columns = [Column("layer", "word"), Column("kernels by rows of a tile", "text")]
    found = any(layer.structure for layer in layers)
    columns += [Column("structure", "text")] if found else []
    columns += [Column("why", "text")]
    rows = (
        Row("", (name, layer.kernel, *((layer.structure.replace("\n", "; "),) if found else ()), layer.reason))
        for name, layer in _alike(layers)
    )
    note = "\n".join(report_notes(story.explanation.report))
    return section("structure", "Structure found, and kernels", note, table("Linear layers", columns, rows))


def _alike(layers: Sequence[LayerReport]) -> Iterator[tuple[str, LayerReport]]:
    """Yield layers with their names, those of which all is the same but the name once."""
    names: dict[tuple[str, str, str], list[str]] = {}
    first: dict[tuple[str, str, str], LayerReport] = {}
    for layer, name in zip(layers, short_names([layer.name for layer in layers]), strict=True):
        what = layer.kernel, layer.structure, layer.reason
        names.setdefault(what, []).append(name)
        first.setdefault(what, layer)
    for what, layer in first.items():
        more = f" and {len(names[what]) - 1} more" if len(names[what]) > 1 else ""
        yield f"{names[what][0]}{more}", layer
