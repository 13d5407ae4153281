"""The last part of the page: orders of the connections, and what no order can go below."""

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator
from html import escape

import numpy as np
from numpy.typing import NDArray

from ....theory.pebbling.machine import POLICIES
from ....theory.pebbling.search.search import FoundOrder
from ..explanation import SEARCHED, Explanation, NetworkExplanation, Transfers
from .charts import Axes, Line, line_chart
from .markup import Card, Column, Row, cards, section, table


def order_sections(explanation: Explanation) -> Iterator[str]:
    """Yield the sections on the graphs of neurons of a model; none where it has no such graph."""
    network, request = explanation.network, explanation.request
    if network is None:
        return
    graphs, _, cut = explanation.graph_line.partition("; ")
    columns = "one column" if request.batch_tile == 1 else f"{request.batch_tile} columns"
    yield section(
        "orders",
        "Orders of the connections, and bounds",
        f"{graphs}. A value is a weight, a bias, an input or the sum of a neuron; values move between "
        f"a slow memory and a fast one with room for M = {request.memory:,} rows of {columns}. MIN evicts the value "
        "that is used again last, as a compiler can; LRU the least recently used value, as caches do; "
        "RR each slot in turn; WRITEBACK is MIN with writes weighed.",
        _cards_of(network) + _order_table(network) + _cuts(cut),
    )
    yield section(
        "memory",
        "Transfers against the size of fast memory",
        f"Under MIN. Target blocks, sliding window and the searched order were made for M = {request.memory:,}, at the "
        "vertical line, and are counted at the other sizes as they are.",
        _curve_chart(network, request.memory),
    )
    traced = [found for found in network.schedule.found if len(found.trace.proposals) > 1] if network.schedule else []
    if traced:
        largest = max(traced, key=lambda found: len(found.order))
        where = "" if len(traced) == 1 else f"The largest graph, {len(largest.order):,} connections. "
        note = f"{where}From the start “{largest.start}”: the search's own estimate of the transfers."
        yield section("search", "Search for an order", note, _trace_chart(largest))
    note = "A dot is a connection: its target's row, its source's column."
    yield section("connections", "Connections", note, _matrices(network))


def _cuts(cut: str) -> str:
    """Return a foldable list of the ops that cut a model into graphs."""
    return f"<details><summary>What cuts it into graphs</summary><p>{escape(cut)}.</p></details>" if cut else ""


def _cards_of(network: NetworkExplanation) -> str:
    best, fewest = network.orders[network.order_name]["min"].total, max(network.instance_lower, 1)
    times = "the fewest" if best == network.instance_lower else f"{best / fewest:.3f} times the fewest"
    return cards(
        [
            Card(
                "Graph",
                f"{network.network.connection_count:,}",
                f"connections, {network.network.neuron_count:,} neurons",
            ),
            Card("No order moves less than", f"{network.instance_lower:,}", f"values: {', '.join(network.arguments)}"),
            Card(f"Best order: {network.order_name}", f"{best:,}", f"values, {times}"),
        ]
    )


def _order_table(network: NetworkExplanation) -> str:
    fewest, blanks = max(1, network.instance_lower), ("",) * len(POLICIES[1:])
    rows: list[Row] = []
    for name, moved in sorted(network.orders.items(), key=lambda item: item[1]["min"].total):
        style = "best" if name == network.order_name else ""
        others = (f"{moved[policy].total / fewest:.3f}" for policy in POLICIES[1:])
        rows.append(Row(style, (name, *_numbers(moved["min"], fewest), *others)))
    certified = f"no order below, this memory ({', '.join(network.arguments)})"
    rows += [
        Row("bound", ("no order below, any memory", *_numbers(network.lower, fewest), *blanks)),
        Row("bound", (certified, "", "", f"{network.instance_lower:,}", "1.000", *blanks)),
        Row("bound", ("pull order, room for three", *_numbers(network.upper, fewest), *blanks)),
    ]
    numbers = ("MIN reads", "MIN writes", "MIN total", "ratio", *(f"{policy.upper()} ratio" for policy in POLICIES[1:]))
    caption = "Values moved; ratios are to the fewest that any order needs with this memory"
    return table(caption, [Column("order", "word"), *map(Column, numbers)], rows)


def _numbers(moved: Transfers, fewest: int) -> tuple[str, str, str, str]:
    return f"{moved.reads:,}", f"{moved.writes:,}", f"{moved.total:,}", f"{moved.total / fewest:.3f}"


def _curve_chart(network: NetworkExplanation, memory: int) -> str:
    curve = network.curve
    names = [name for name in curve.orders if name != SEARCHED]
    lines = [
        Line("no order below, any M", curve.memories, [network.lower.total] * len(curve.memories), "bound"),
        Line("pull order, room for three", curve.memories, [network.upper.total] * len(curve.memories), "dotted"),
        Line("no order below, this M", curve.memories, curve.instance_lower, "certified"),
        *(Line(name, curve.memories, curve.orders[name], f"c{index % 5}") for index, name in enumerate(names)),
    ]
    if SEARCHED in curve.orders:
        lines.append(Line(SEARCHED, curve.memories, curve.orders[SEARCHED], "best"))
    wide = max(max(line.ys) for line in lines) > 6 * min(min(line.ys) for line in lines)
    axes = Axes("rows of fast memory, M", "values moved", log_x=True, log_y=wide, marked_x=memory)
    return line_chart(lines, axes)


def _trace_chart(found: FoundOrder) -> str:
    trace = found.trace
    pick = np.unique(np.linspace(0, len(trace.proposals) - 1, 400).astype(np.int64))
    proposals = trace.proposals[pick].tolist()
    lines = [
        Line("now", proposals, trace.costs[pick].tolist(), "faint"),
        Line("at best", proposals, trace.best_costs[pick].tolist(), "best"),
    ]
    return line_chart(lines, Axes("moves proposed", "values moved, one column"))


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


# Pictures of matrices as PNG, inside of a page.


def dot_picture(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int], size: int = 360) -> str:
    """Return a data URI of a PNG of `size` pixels square: darker where more of the entries (row, column) lie."""
    cells = tuple(min(size, max(1, count)) for count in shape)
    counts = np.zeros(cells)
    np.add.at(
        counts,
        tuple(at * cell // max(1, count) for at, cell, count in zip((rows, columns), cells, shape, strict=True)),
        1.0,
    )
    share = np.sqrt(counts / max(1.0, float(np.quantile(counts[counts > 0], 0.98)) if counts.any() else 1.0))
    grey = (255 - np.minimum(share, 1.0) * 235).astype(np.uint8)
    grey[counts == 0] = 255
    picks = [np.arange(size) * cell // size for cell in cells]
    return f"data:image/png;base64,{b64encode(_png(grey[np.ix_(*picks)])).decode()}"


def _png(grey: NDArray[np.uint8]) -> bytes:
    """Return an 8-bit grey image [height, width] as PNG."""
    height, width = grey.shape
    lines = b"".join(b"\x00" + row.tobytes() for row in grey)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
