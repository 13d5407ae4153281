"""Ops over the edges of a graph: their sizes, and the order of products with the prices of both orders."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table
from xdsl.dialects.builtin import ModuleOp

from ...dialect.ops.graphs import AggregateOp, OverEdges
from ...dialect.provenance import node_name
from ...dialect.tensors import shape_of
from ...kernels.graphs.aggregate_cost import EDGES_OF_NODE, NODES_OF_CALL


class EdgeLine(NamedTuple):
    """An op over edges."""

    name: str
    nodes: int | None
    """Number of targets; None where a call brings the edges."""
    edges: int | None
    features: int
    order: str
    """The product that comes first, and the predicted times of both orders."""


def edge_lines(module: ModuleOp) -> list[EdgeLine]:
    """Return the ops over edges of a simplified module."""
    ops = [op for op in module.walk() if isinstance(op, OverEdges)]
    return [EdgeLine(node_name(op), *_counts(op), shape_of(op.x)[-1], _order(op)) for op in ops]


def _counts(op: OverEdges) -> tuple[int | None, int | None]:
    """Return the numbers of nodes and edges; None for those of the call."""
    return (None, None) if op.of_call else (op.edges.shape[1], len(op.edges.values))


def _order(op: OverEdges) -> str:
    if not isinstance(op, AggregateOp):
        return "scores and weights of edges computed where they are used"
    if op.order is None:
        return "no layer beside it may change places with it"
    of_call = f" ({NODES_OF_CALL:,} nodes of {EDGES_OF_NODE} edges)" if op.of_call else ""
    return op.order.sentence + of_call


def edge_table(lines: Sequence[EdgeLine]) -> Table:
    """Return a row for each line."""
    table = Table(box=None, pad_edge=False, header_style="")
    for header in ("over edges", "nodes", "edges", "features", "order of products"):
        table.add_column(header, justify="right" if header in ("nodes", "edges", "features") else "left")
    for line in lines:
        counts = ("of the call" if count is None else f"{count:,}" for count in (line.nodes, line.edges))
        table.add_row(line.name, *counts, f"{line.features:,}", line.order)
    return table
