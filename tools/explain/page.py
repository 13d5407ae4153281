"""An explanation as one HTML page that needs nothing but itself."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.reports.layer_report import LayerReport
from redpebble.theory.pebbling.search.search import FoundOrder
from redpebble.tools.explain.charts import Axes, Line, dot_picture, line_chart
from redpebble.tools.explain.explanation import SEARCHED, Explanation, NetworkExplanation, Transfers
from redpebble.tools.explain.layer_tables import SENTENCES, TITLE, WORDS, layer_columns, reason_columns, report_notes

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #f6f6f4; color: #1d1d1b; font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1320px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 0 0 4px; }
p { margin: 0 0 12px; max-width: 76ch; } .note { color: #62625d; font-size: 13.5px; white-space: pre-line; }
section { background: #fff; border: 1px solid #e3e3de; border-radius: 8px; padding: 20px 22px; margin-top: 18px; }
dl { display: flex; flex-wrap: wrap; gap: 12px; margin: 18px 0 0; }
dl div { background: #fff; border: 1px solid #e3e3de; border-radius: 8px; padding: 10px 16px; min-width: 130px; }
dt { color: #62625d; font-size: 13px; } dd { margin: 0; font-size: 20px; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 8px; border-bottom: 1px solid #ecece8; white-space: nowrap; }
th { font-weight: 600; font-size: 13px; color: #62625d; } .word, .text { text-align: left; }
td { vertical-align: top; } td.word { white-space: pre; } td.text { white-space: pre-line; }
tr.best td { font-weight: 650; } tr.bound td { color: #62625d; }
svg { width: 100%; min-width: 620px; height: auto; display: block; font: 13px system-ui, sans-serif; }
.grid { stroke: #e8e8e3; } .tick, .axis { fill: #62625d; } .mark { stroke: #9a9a93; stroke-dasharray: 2 3; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.c0 { stroke: #0072b2; } .c1 { stroke: #b36b00; } .c2 { stroke: #007d5a; } .c3 { stroke: #a5487f; }
.c4 { stroke: #7a6fd0; }
.best { stroke: #c22f1e; stroke-width: 2.6; } .bound { stroke: #55554f; stroke-dasharray: 6 4; stroke-width: 1.4; }
.certified { stroke: #1d1d1b; stroke-width: 1.4; } .faint { stroke: #b9b9b2; stroke-width: 1.2; }
.name { fill: #1d1d1b; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 24px; } figure { margin: 0; }
.pair img { width: 100%; max-width: 440px; aspect-ratio: 1; border: 1px solid #e3e3de; image-rendering: pixelated; }
figcaption { color: #62625d; font-size: 13.5px; margin-top: 6px; }
@media (max-width: 700px) { .pair { grid-template-columns: 1fr; } }
"""


def explain_page(name: str, explanation: Explanation) -> str:
    """Return the page for a model called `name`."""
    sections = [_network_sections(explanation.network, explanation)] if explanation.network is not None else []
    notes = [
        f"What the linear layers are after optimization. {TITLE[0].upper()}{TITLE[1:]}.",
        *report_notes(explanation.report),
    ]
    layers = _section("Layers", "\n".join(notes), _layer_tables(explanation.report))
    body = "".join([_head(name, explanation), *sections, layers])
    title = escape(f"{name}: data movement")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body><main>{body}</main></body></html>\n"
    )


def _head(name: str, explanation: Explanation) -> str:
    request, network = explanation.request, explanation.network
    text = f"{explanation.graph_line}."
    if network is None:
        return f"<h1>{escape(name)}</h1><p>{escape(text)} There is nothing to schedule.</p>"
    columns = "one column" if request.batch_tile == 1 else f"{request.batch_tile} columns"
    text += (
        f" Numbers are values moved between slow and fast memory for a batch tile of {columns}, with a fast memory of "
        f"{request.memory:,} rows."
    )
    best = network.orders[network.order_name]["min"].total
    fewest = max(network.instance_lower, 1)
    cards = {
        "neurons": f"{network.network.neuron_count:,}",
        "connections": f"{network.network.connection_count:,}",
        "no order below": f"{network.instance_lower:,}",
        f"best order: {network.order_name}": f"{best:,}",
        "that is": "the fewest" if best == network.instance_lower else f"{best / fewest:.3f} times",
    }
    listed = "".join(f"<div><dt>{escape(key)}</dt><dd>{value}</dd></div>" for key, value in cards.items())
    return f"<h1>{escape(name)}</h1><p>{escape(text)}</p><dl>{listed}</dl>"


def _network_sections(network: NetworkExplanation, explanation: Explanation) -> str:
    memory = explanation.request.memory
    parts = [
        _section(
            "Orders",
            f"Transfers of orders of the connections for M = {memory:,}. MIN evicts what is used again last, which a "
            "compiler can; LRU evicts what was not used for longest, as caches do.",
            _order_table(network),
        ),
        _section(
            "Transfers against the size of fast memory",
            f"Under MIN. Target blocks, sliding window and the searched order were made for M = {memory:,}, "
            "the dotted line. Black: what no order can go below with this memory. Dashed: the same for any memory, and "
            "what the pull order needs with room for only three values.",
            _curve_chart(network, memory),
        ),
    ]
    traced = [found for found in network.schedule.found if len(found.trace.proposals) > 1] if network.schedule else []
    if traced:
        largest = max(traced, key=lambda found: len(found.order))
        where = "" if len(traced) == 1 else f"The largest graph, {len(largest.order):,} connections. "
        note = f"{where}From the start “{largest.start}”: the search's own estimate of the transfers, now and at best."
        parts.append(_section("Search", note, _trace_chart(largest)))
    parts.append(
        _section("Connections", "A dot is a connection: its target's row, its source's column.", _matrices(network))
    )
    return "".join(parts)


def _section(title: str, note: str, content: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="note">{escape(note)}</p>{content}</section>'


class _Row(NamedTuple):
    """A row of a table: its class in the style sheet and its cells."""

    style: str
    cells: Sequence[str]


def _table(headers: Sequence[str], rows: Iterable[_Row], words: Sequence[str] = ()) -> str:
    """Return a table. Columns under `words` hold words, as the first does."""
    kinds = ["word" if not place or header in words else "number" for place, header in enumerate(headers)]
    kinds = ["text" if header in SENTENCES else kind for header, kind in zip(headers, kinds, strict=True)]

    def line(kind: str, style: str, cells: Sequence[str]) -> str:
        written = (
            f'<{kind} class="{column}">{escape(cell)}</{kind}>' for cell, column in zip(cells, kinds, strict=True)
        )
        return f'<tr class="{style}">{"".join(written)}</tr>'

    lines = "".join(line("td", style, cells) for style, cells in rows)
    return f'<div class="scroll"><table>{line("th", "", headers)}{lines}</table></div>'


def _order_table(network: NetworkExplanation) -> str:
    fewest = max(1, network.instance_lower)
    rows: list[_Row] = []
    for name, moved in sorted(network.orders.items(), key=lambda item: item[1]["min"].total):
        lru = moved["lru"].total
        style = "best" if name == network.order_name else ""
        rows.append(_Row(style, (name, *_numbers(moved["min"], fewest), f"{lru:,}", f"{lru / fewest:.3f}")))
    certified = f"no order below, this memory ({', '.join(network.arguments)})"
    rows += [
        _Row("bound", ("no order below, any memory", *_numbers(network.lower, fewest), "", "")),
        _Row("bound", (certified, "", "", f"{network.instance_lower:,}", "1.000", "", "")),
        _Row("bound", ("pull order, room for three", *_numbers(network.upper, fewest), "", "")),
    ]
    return _table(("order", "MIN reads", "MIN writes", "MIN total", "ratio", "LRU total", "ratio"), rows)


def _numbers(moved: Transfers, fewest: int) -> tuple[str, str, str, str]:
    return f"{moved.reads:,}", f"{moved.writes:,}", f"{moved.total:,}", f"{moved.total / fewest:.3f}"


def _curve_chart(network: NetworkExplanation, memory: int) -> str:
    curve = network.curve
    names = [name for name in curve.orders if name != SEARCHED]
    lines = [
        Line("no order below, any M", curve.memories, [network.lower.total] * len(curve.memories), "bound"),
        Line("pull, room for three", curve.memories, [network.upper.total] * len(curve.memories), "bound"),
        Line("no order below, this M", curve.memories, curve.instance_lower, "certified"),
        *(Line(name, curve.memories, curve.orders[name], f"c{index % 5}") for index, name in enumerate(names)),
    ]
    if SEARCHED in curve.orders:
        lines.append(Line(SEARCHED, curve.memories, curve.orders[SEARCHED], "best"))
    wide = max(max(line.ys) for line in lines) > 6 * min(min(line.ys) for line in lines)
    axes = Axes("rows of fast memory, M", "values moved", log_x=True, log_y=wide, marked_x=memory)
    return f'<div class="scroll">{line_chart(lines, axes)}</div>'


def _trace_chart(found: FoundOrder) -> str:
    trace = found.trace
    pick = np.unique(np.linspace(0, len(trace.proposals) - 1, 400).astype(np.int64))
    proposals = trace.proposals[pick].tolist()
    lines = [
        Line("now", proposals, trace.costs[pick].tolist(), "faint"),
        Line("at best", proposals, trace.best_costs[pick].tolist(), "best"),
    ]
    return f'<div class="scroll">{line_chart(lines, Axes("moves proposed", "values moved, one column"))}</div>'


def _matrices(network: NetworkExplanation) -> str:
    graph, order = network.network, network.order
    steps = np.empty(len(order), dtype=np.int64)
    steps[order] = np.arange(len(order))
    pictures = [
        (
            "as the model numbers its neurons",
            _ranks(graph.targets, graph.targets),
            _ranks(graph.sources, graph.sources),
        ),
        (
            f"as “{network.order_name}” meets them: sources by first use, targets by last",
            _ranks(graph.targets, steps, last=True),
            _ranks(graph.sources, steps),
        ),
    ]
    figures = [
        f'<figure><img alt="{escape(caption)}" src="{dot_picture(rows[0], columns[0], (rows[1], columns[1]))}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, rows, columns in pictures
    ]
    return f'<div class="pair">{"".join(figures)}</div>'


def _ranks(neurons: NDArray[np.int64], keys: NDArray[np.int64], *, last: bool = False) -> tuple[NDArray[np.int64], int]:
    """Return for each connection the place of its neuron by that neuron's first or last key, and how many there are."""
    unique, of_connection = np.unique(neurons, return_inverse=True)
    extreme = np.full(len(unique), -1 if last else np.iinfo(np.int64).max, dtype=np.int64)
    (np.maximum if last else np.minimum).at(extreme, of_connection, keys)
    place = np.empty(len(unique), dtype=np.int64)
    place[np.argsort(extreme, kind="stable")] = np.arange(len(unique))
    return place[of_connection], len(unique)


def _layer_tables(layers: Sequence[LayerReport]) -> str:
    tables: list[str] = []
    for columns in (layer_columns(layers, moved=True), reason_columns(layers)):
        rows = (_Row("", ["\n".join(lines) for lines in cells]) for cells in zip(*columns.values(), strict=True))
        tables.append(_table([*columns], rows, words=WORDS))
    return "".join(tables)
