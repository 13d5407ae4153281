"""The part of the page on data movement: a slider over the levels of lowering."""

from collections.abc import Sequence
from html import escape

from ..lowering_levels import BATCHES, KindMovement, Level
from .layers import of_batch
from .markup import Column, Row, byte_text, count_text, section, table, time_text

COLUMNS = (
    Column("op", "word"),
    Column("ops"),
    Column("operations"),
    Column("weights"),
    Column("activations"),
    Column("inside of tiles"),
    Column("predicted"),
)


def movement_section(levels: Sequence[Level]) -> str:
    """Return the section; without a script all levels are shown one after the other."""
    note = (
        "After each pass that changes the model: the bytes of weights and activations that ops read and write, the "
        "bytes that stay in the cache between layers of a tile, and the predicted time. Ops that stay with "
        "onnxruntime do not count. Weights are read once for each tile of rows. Every number is counted on the "
        "program as it stands behind the pass."
    )
    keys = "".join(
        f'<span class="key"><i class="{style}"></i>{name}</span>'
        for style, name in (("weights", "weights"), ("values", "activations"), ("cached", "inside of tiles"))
    )
    slider = (
        '<div class="slider"><label for="level">Level</label>'
        f'<input id="level" type="range" min="0" max="{len(levels) - 1}" value="{len(levels) - 1}" step="1">'
        '<output id="level-name" for="level"></output></div>'
    )
    buttons = "".join(of_batch(batch, _bars(levels, batch)) for batch in BATCHES)
    return section(
        "movement", "Data movement, level by level", note, f"<p>{keys}</p>{buttons}{slider}{_panels(levels)}"
    )


def _bars(levels: Sequence[Level], batch: int) -> str:
    totals = [level.total(batch) for level in levels]
    most = max(total.moved_bytes + total.cached_bytes for total in totals) or 1
    lines = (_bar(place, levels[place], total, most) for place, total in enumerate(totals))
    return f'<ol class="levels">{"".join(lines)}</ol>'


def _bar(place: int, level: Level, total: KindMovement, most: int) -> str:
    parts = (("weights", total.weight_bytes), ("values", total.activation_bytes), ("cached", total.cached_bytes))
    bars = "".join(f'<i class="{style}" style="width:{100 * count / most:.2f}%"></i>' for style, count in parts)
    return (
        f'<li><button type="button" aria-pressed="false" data-level="{place}">'
        f"<span>{escape(level.name)}<small>{escape(level.stage)}</small></span>"
        f'<span class="track">{bars}</span>'
        f'<span class="figures">{byte_text(total.moved_bytes)}<br><small>{time_text(total.predicted_us)}</small></span>'
        "</button></li>"
    )


def _panels(levels: Sequence[Level]) -> str:
    return "".join(_panel(number, level) for number, level in enumerate(levels))


def _panel(number: int, level: Level) -> str:
    name, tables = escape(level.name), "".join(of_batch(batch, _table(level, batch)) for batch in BATCHES)
    said = f"<h3>{number}. {name}</h3><p>{escape(level.what)}.</p>"
    return f'<div class="panel" data-name="{name}">{said}{tables}</div>'


def _table(level: Level, batch: int) -> str:
    rows = [Row("", _cells(part)) for part in level.kinds[batch]]
    total = Row("best", _cells(level.total(batch)))
    return table(f"Behind “{level.name}”, batch of {batch}", COLUMNS, [*rows, total])


def _cells(part: KindMovement) -> tuple[str, ...]:
    moved = (part.weight_bytes, part.activation_bytes, part.cached_bytes)
    return (
        part.kind,
        f"{part.ops:,}" if part.ops else "",
        count_text(part.operations) if part.operations else "",
        *(byte_text(count) if count else "" for count in moved),
        time_text(part.predicted_us) if part.predicted_us else "",
    )
