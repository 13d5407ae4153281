"""Ops over the edges of a graph: their sizes, and the order of products with the prices of both orders."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table
from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.ops.graphs.aggregate import AggregateOp
from redpebble.dialect.ops.graphs.attend_edges import OVER_EDGES
from redpebble.dialect.provenance import node_name
from redpebble.dialect.tensors import shape_of


class EdgeLine(NamedTuple):
    """An op over edges."""

    name: str
    nodes: int
    edges: int
    features: int
    order: str
    """The product that comes first, and the predicted times of both orders."""


def edge_lines(module: ModuleOp) -> list[EdgeLine]:
    """Return the ops over edges of a simplified module."""
    ops = [op for op in module.walk() if isinstance(op, OVER_EDGES)]
    return [
        EdgeLine(node_name(op), op.edges.shape[1], len(op.edges.values), shape_of(op.x)[-1], _order(op)) for op in ops
    ]


def _order(op: OVER_EDGES) -> str:
    if not isinstance(op, AggregateOp):
        return "scores and weights of edges computed where they are used"
    return "no layer beside it may change places with it" if op.order is None else op.order.sentence


def edge_table(lines: Sequence[EdgeLine]) -> Table:
    """Return a row for each line."""
    table = Table(box=None, pad_edge=False, header_style="")
    for header in ("over edges", "nodes", "edges", "features", "order of products"):
        table.add_column(header, justify="right" if header in ("nodes", "edges", "features") else "left")
    for line in lines:
        table.add_row(line.name, f"{line.nodes:,}", f"{line.edges:,}", f"{line.features:,}", line.order)
    return table
