"""The story of a model as one HTML page: its speed first, then its layers, its data movement, the theory last."""

from collections.abc import Sequence
from html import escape
from math import inf

from ....frontend.multiply_adds import LONG
from ....sparse.csr import CONNECTION_BYTES
from ....theory.attention_cost import least_bytes, moved_bytes
from ..attention_table import AttentionLine
from ..lowering_levels import BATCHES, KindMovement, Level
from ..story import Story
from .layers import of_batch, roofline_section, structure_section, time_section
from .markup import Card, Column, Row, byte_text, cards, count_text, ratio_text, section, table, time_text
from .markup import table as table_of
from .orders import order_sections
from .picture import picture_section
from .style import SCRIPT, STYLE

# The part of the page on data movement: a slider over the levels of lowering.


MOVED_COLUMNS = (
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
    lines = (_moved_bar(place, levels[place], total, most) for place, total in enumerate(totals))
    return f'<ol class="levels">{"".join(lines)}</ol>'


def _moved_bar(place: int, level: Level, total: KindMovement, most: int) -> str:
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
    return table(f"Behind “{level.name}”, batch of {batch}", MOVED_COLUMNS, [*rows, total])


def _cells(part: KindMovement) -> tuple[str, ...]:
    moved = (part.weight_bytes, part.activation_bytes, part.cached_bytes)
    return (
        part.kind,
        f"{part.ops:,}" if part.ops else "",
        count_text(part.operations) if part.operations else "",
        *(byte_text(count) if count else "" for count in moved),
        time_text(part.predicted_us) if part.predicted_us else "",
    )


LINKS = (
    ("speed", "Speed"),
    ("model", "Model"),
    ("time", "Layers"),
    ("roofline", "Roofline"),
    ("attention", "Attention"),
    ("movement", "Data movement"),
    ("stays", "What stays"),
    ("structure", "Structure"),
    ("orders", "Orders and bounds"),
)

WORTHWHILE = 1.05
"""Times as fast from which on something is gained."""


def explain_page(story: Story) -> str:
    """Return the page of a story."""
    sections = [_head(story)]
    if story.nodes is not None:
        sections.append(picture_section(story.nodes))
    if story.taken:
        sections.append(time_section(story))
    if story.taken and story.is_priced:
        sections.append(roofline_section(story))
    if story.attentions:
        sections.append(attention_section(story.attentions))
    if any(level.kinds[batch] for level in story.levels for batch in BATCHES):
        sections.append(movement_section(story.levels))
    sections += [_stays_section(story)]
    if story.taken:
        sections.append(structure_section(story))
    sections += order_sections(story.explanation)
    body = "".join([*sections, _foot(story)])
    title = escape(f"{story.name}: speed and data movement")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f"<body>{_bar(body)}<main>{body}</main><script>{SCRIPT}</script></body></html>\n"
    )


def _bar(body: str) -> str:
    """Return the bar with links to the sections that there are, and the choice of the batch."""
    links = "".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in LINKS if f'id="{anchor}"' in body)
    choices = "".join(
        f'<label><input type="radio" name="batch" id="batch-{batch}"{" checked" if batch == BATCHES[-1] else ""}>'
        f"{batch}</label>"
        for batch in BATCHES
    )
    return (
        f'<div class="bar"><div><nav aria-label="Sections">{links}</nav>'
        f"<fieldset><legend>Batch</legend>{choices}</fieldset></div></div>"
    )


def _head(story: Story) -> str:
    """Return speed and size, what bounds them, and what to do next."""
    speeds = [_speed_card(story, batch) for batch in BATCHES] if story.is_priced else []
    shown = [*speeds, *_size_cards(story)]
    bounds = "".join(of_batch(batch, f"<p>{escape(_bound(story, batch))}</p>") for batch in BATCHES)
    return (
        f'<div id="speed"><h1>{escape(story.name)}</h1>{_leads(story)}{cards(shown)}'
        f"</div>{section('bound', 'What bounds it', '', bounds + _next(story))}"
    )


def _speedup(story: Story, batch: int) -> float:
    before, after = (story.levels[place].total(batch).predicted_us for place in (0, -1))
    return before / after if after else 1.0


def _leads(story: Story) -> str:
    """Return the gain of the whole model in a session, and of its layers alone."""
    whole = [f"{story.gain[0].upper()}{story.gain[1:]}."] if story.gain else []
    return "".join(f'<p class="lead">{escape(sentence)}</p>' for sentence in (*whole, _headline(story)))


def _headline(story: Story) -> str:
    speedups = {batch: _speedup(story, batch) for batch in BATCHES}
    if not story.is_priced:
        return "Layers on quantized values of eight bits have prices of their own: what passes gain is told in bytes."
    if not story.explanation.report:
        return "There is no linear layer with constant weights: all of it stays with onnxruntime."
    if max(speedups.values()) < WORTHWHILE:
        return "Nothing is gained: its weights have hardly any zeros. Prune it first."
    told = " and ".join(f"{ratio_text(speedup)} at batch {batch}" for batch, speedup in speedups.items())
    part = "" if story.placement is None else ", of those that are covered"
    return (
        f"Native, without onnxruntime around it: {told} predicted, against the same layers dense and one by one{part}."
    )


def _speed_card(story: Story, batch: int) -> Card:
    before, after = (story.levels[place].total(batch).predicted_us for place in (0, -1))
    words = f"{time_text(before)} → {time_text(after)} predicted"
    return Card(f"Native, batch {batch}", ratio_text(_speedup(story, batch)), words)


def _size_cards(story: Story) -> list[Card]:
    before, after = (story.levels[place].total(1) for place in (0, -1))
    many_before, many_after = (story.levels[place].total(BATCHES[-1]) for place in (0, -1))
    shown = [
        Card("Operations", count_text(after.operations), f"were {count_text(before.operations)}, batch 1"),
        Card(
            f"Moved at batch {BATCHES[-1]}",
            byte_text(many_after.moved_bytes),
            f"were {byte_text(many_before.moved_bytes)}",
        ),
    ]
    connections = sum(layer.connections for layer in story.explanation.report)
    possible = sum(layer.inputs * layer.outputs for layer in story.explanation.report)
    if possible:
        share = f"{100 * connections / possible:.3g} % of those that the layers could have"
        shown.append(Card("Connections", count_text(connections), share))
    if story.placement is not None:
        shown.append(
            Card(
                "Taken",
                f"{100 * story.placement.share:.0f} %",
                f"of the multiply-adds of the model{story.placement.uncounted_text}",
            )
        )
    return shown


def _bound(story: Story, batch: int) -> str:
    """Return in sentences what a batch spends its time with."""
    times = sorted(story.taken_times(batch), key=lambda one: -one.microseconds)
    if story.layer_times[batch] and not times:
        return "Every linear layer stays with onnxruntime."
    if not times or not story.levels[-1].total(batch).predicted_us or not story.is_priced:
        return (
            "What bounds layers on quantized values is not told." if times else "No layer of it has a predicted time."
        )
    whole, slowest = sum(one.microseconds for one in times) or 1.0, times[0]
    taken = " that are taken" if len(times) < len(story.layer_times[batch]) else ""
    said = [
        f"Batch {batch}: {slowest.name}{'' if slowest.count == 1 else f' (x {slowest.count})'} takes "
        f"{100 * slowest.microseconds / whole:.0f} % of the time of the linear layers{taken}.",
        _memory_text(story, batch),
    ]
    if story.placement is not None and story.placement.bound < inf:
        said.append(
            f"{100 - 100 * story.placement.share:.0f} % of the multiply-adds stay with onnxruntime: were the rest "
            f"free, the model would be {ratio_text(story.placement.bound)} as fast."
        )
    return " ".join(said)


def _memory_text(story: Story, batch: int) -> str:
    """Return whether the weights of layers that are taken fit into a cache, and what moving them takes."""
    machine, total = story.machine, story.levels[-1].total(batch)
    weights = CONNECTION_BYTES * sum(one.connections for one in story.taken_times(batch))
    if weights <= machine.l2_bytes:
        return (
            f"All weights, {byte_text(weights)}, fit into the second-level cache of {byte_text(machine.l2_bytes)}: "
            "instructions bound it, not memory."
        )
    every = CONNECTION_BYTES * sum(one.connections for one in story.layer_times[batch])
    streamed = machine.far_ns(weights, weights) / 1000 * max(1, total.weight_bytes / max(1, every))
    taken_us = total.predicted_us - sum(one.predicted_us for one in story.layer_times[batch] if one.stays)
    share = streamed / max(taken_us, streamed)
    return (
        f"The weights, {byte_text(weights)}, do not fit into the second-level cache of "
        f"{byte_text(machine.l2_bytes)}: to stream them takes {time_text(streamed)}, {100 * share:.0f} % of the "
        f"time, so that {'moving them' if share > 0.5 else 'instructions'} bound{'s' if share > 0.5 else ''} it."
    )


def _next(story: Story) -> str:
    if story.is_priced and max(_speedup(story, batch) for batch in BATCHES) < WORTHWHILE:
        return (
            "<p>Below about half zeros nothing is gained: prune the weights of linear layers, train a little, and "
            "export again.</p>"
        )
    return (
        "<p>To run it: <code>redpebble.session(path)</code> in Python, or <code>redpebble optimize IN.onnx OUT.onnx "
        '<span class="whole">--library</span></code> for a program in any language. To measure it against onnxruntime: '
        "<code>redpebble bench IN.onnx</code>.</p>"
    )


def _stays_section(story: Story) -> str:
    """Return the section on the nodes that onnxruntime keeps; nothing where it keeps none."""
    placement = story.placement
    if placement is None or not placement.stayed:
        return ""
    rows = (
        Row(
            "",
            (
                one.operator,
                f"{one.nodes:,}",
                count_text(one.multiply_adds),
                f"{100 * one.multiply_adds / placement.multiply_adds:.1f} %",
                one.reason,
            ),
        )
        for one in placement.stayed
    )
    note = f"Work before pruning, at batch 1 and {LONG} for other free axes, in multiply-adds."
    columns = [
        Column("operator", "word"),
        Column("nodes"),
        Column("multiply-adds"),
        Column("share"),
        Column("why", "text"),
    ]
    return section(
        "stays", "What stays with onnxruntime", note, table_of("Nodes that multiply and were not taken", columns, rows)
    )


def _foot(story: Story) -> str:
    origin, machine = story.origin, story.machine
    caches = f"{machine.l1_bytes >> 10} KiB and {machine.l2_bytes >> 10} KiB of cache a core"
    return (
        f"<footer><p>redpebble {escape(origin.version)}, {escape(origin.day)}, {escape(origin.cpu)}: "
        f"{machine.lanes} floats a vector, {caches}, one thread. "
        f"Free axes other than that of the batch count {LONG}.</p>"
        f"<p><code>{escape(origin.command)}</code></p></footer>"
    )


# The section of the page on attention: what the terminal's table says.

COLUMNS = (
    Column("attention", "word"),
    *map(Column, ("heads", "queries", "keys", "moved", "at least", "predicted", "measured here")),
)


def attention_section(lines: Sequence[AttentionLine]) -> str:
    """Return the section on attention by its length."""
    note = "One call of one sample, beside the layers; lengths that the model leaves open are 16, 128 and 512."
    return section("attention", "Attention by length", note, table("Attention by length", COLUMNS, map(_row, lines)))


def _row(line: AttentionLine) -> Row:
    size = line.size
    counts = f"{size.heads} x {size.key_size}", f"{size.queries:,}", f"{size.keys:,}"
    moved = byte_text(moved_bytes(size)), byte_text(least_bytes(size))
    return Row("", (line.title, *counts, *moved, time_text(line.predicted_us), time_text(line.measured_us)))
