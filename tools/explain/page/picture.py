"""The model as a picture: its nodes from top to bottom, those that run as our code in colour, chains as one box.

A box stands one row below the lowest of those that it reads; in a row boxes follow the places of what they read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Final

import onnx_ir

from ....driver.placement import NodesLeft
from .markup import section

MOST_BOXES: Final = 400
"""Boxes that are drawn: of a larger model those that come first."""

MOST_LETTERS: Final = 22

WIDTH, HEIGHT, GAP_X, GAP_Y = 164, 26, 16, 20
"""Pixels of a box, and between two of them."""


@dataclass(frozen=True)
class Box:
    """A chain of nodes, each of which is the only reader of the one before: all of them taken, or all left."""

    operators: tuple[str, ...]
    name: str
    reason: str
    """Reasons for which onnxruntime keeps them; empty where they run as our code, or are folded away."""
    reads: tuple[int, ...]
    """Places of the boxes that it reads."""

    @property
    def label(self) -> str:
        """The operators as far as there is room."""
        text = ""
        for place, operator in enumerate(self.operators):
            longer = f"{text}, {operator}" if text else operator
            if len(longer) > MOST_LETTERS - 4 and text:
                return f"{text} +{len(self.operators) - place}"
            text = longer
        return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."


def boxes_of(left: NodesLeft) -> list[Box]:
    """Return the nodes of a model as chains, each behind those that it reads; constants are left out."""
    nodes = [node for node in left.model.graph if node.op_type != "Constant"]
    reasons = {node: left.reasons.get(place, "") for place, node in enumerate(left.model.graph)}
    sources = {node: _sources(node, reasons) for node in nodes}
    readers: dict[onnx_ir.Node, set[onnx_ir.Node]] = {}
    for node, read in sources.items():
        for source in read:
            readers.setdefault(source, set()).add(node)
    outputs = {value.producer() for value in left.model.graph.outputs}
    chains: list[list[onnx_ir.Node]] = []
    place_of: dict[onnx_ir.Node, int] = {}
    for node in nodes:
        read = sources[node]
        before = read[0] if len(read) == 1 and readers[read[0]] == {node} and read[0] not in outputs else None
        if before is not None and before in place_of and bool(reasons[before]) == bool(reasons[node]):
            place_of[node] = place_of[before]
            chains[place_of[node]].append(node)
        else:
            place_of[node] = len(chains)
            chains.append([node])
    return [
        Box(
            tuple(node.op_type for node in chain),
            chain[0].name or "",
            "; ".join(dict.fromkeys(filter(None, (reasons[node] for node in chain)))),
            tuple(dict.fromkeys(place_of[one] for one in sources[chain[0]] if one in place_of)),
        )
        for chain in chains
    ]


def _sources(node: onnx_ir.Node, known: Mapping[onnx_ir.Node, str]) -> list[onnx_ir.Node]:
    """Return the nodes of the graph that a node reads, constants left out."""
    found = [value.producer() for value in node.inputs if value is not None]
    return [*dict.fromkeys(one for one in found if one is not None and one in known and one.op_type != "Constant")]


def places_of(boxes: Sequence[Box]) -> list[tuple[int, int]]:
    """Return the row and the column of each box: one row below what it reads, in a row by the columns of that."""
    rows: list[int] = []
    for box in boxes:
        rows.append(1 + max((rows[place] for place in box.reads if place < len(rows)), default=-1))
    columns = [0] * len(boxes)
    for _, members in groupby(sorted(range(len(boxes)), key=rows.__getitem__), key=rows.__getitem__):
        wanted = {
            place: sum(columns[one] for one in boxes[place].reads) / max(1, len(boxes[place].reads))
            for place in members
        }
        for column, place in enumerate(sorted(wanted, key=wanted.__getitem__)):
            columns[place] = column
    return [*zip(rows, columns, strict=True)]


def picture_section(left: NodesLeft) -> str:
    """Return the section with the picture; nothing for a model without nodes."""
    boxes = boxes_of(left)
    if not boxes:
        return ""
    drawn = boxes[:MOST_BOXES]
    keys = "".join(
        f'<span class="key"><i class="{style}"></i>{who}</span>'
        for style, who in (("weights", "our code, or folded away"), ("cached", "onnxruntime"))
    )
    more = f" The first {len(drawn)} of {len(boxes)} boxes." if len(drawn) < len(boxes) else ""
    note = (
        "Nodes as they follow one another in a session, after constants were folded; a chain is one box. A box tells "
        f"its name, and the reason where onnxruntime keeps it.{more}"
    )
    frame = f'<div class="model scroll" tabindex="0" role="region" aria-label="The model">{_svg(drawn)}</div>'
    return section("model", "The model", note, f"<p>{keys}</p>{frame}")


def _svg(boxes: Sequence[Box]) -> str:
    places = places_of(boxes)
    corners = [(8 + column * (WIDTH + GAP_X), 8 + row * (HEIGHT + GAP_Y)) for row, column in places]
    width = max(x for x, _ in corners) + WIDTH + 8
    height = max(y for _, y in corners) + HEIGHT + 8
    lines = [
        f'<path class="edge" d="{_curve(corners[source], corners[place])}"/>'
        for place, box in enumerate(boxes)
        for source in box.reads
        if source < place
    ]
    shapes = [_shape(box, corner) for box, corner in zip(boxes, corners, strict=True)]
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg {size} role="img" aria-label="nodes of the model">{"".join(lines)}{"".join(shapes)}</svg>'


def _curve(source: tuple[int, int], target: tuple[int, int]) -> str:
    """Return the way from the bottom of one box to the top of another."""
    (x, y), (to_x, to_y) = source, target
    x, y, to_x, middle = x + WIDTH // 2, y + HEIGHT, to_x + WIDTH // 2, (y + HEIGHT + to_y) // 2
    return f"M{x} {y}C{x} {middle} {to_x} {middle} {to_x} {to_y}"


def _shape(box: Box, corner: tuple[int, int]) -> str:
    x, y = corner
    told = "\n".join(
        filter(None, (", ".join(box.operators), box.name, box.reason and f"onnxruntime keeps it: {box.reason}"))
    )
    size = f'x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4"'
    style = "left" if box.reason else "taken"
    return (
        f'<g class="{style}"><title>{escape(told)}</title><rect {size}/>'
        f'<text x="{x + WIDTH // 2}" y="{y + 17}" text-anchor="middle">{escape(box.label)}</text></g>'
    )
