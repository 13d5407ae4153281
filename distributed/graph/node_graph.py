"""A model over the nodes of one graph as it can be cut by nodes: sums over edges, and layers of each node by itself.

Nodes have owners, the same ones in all layers. A part computes the values of its own nodes; before a sum over edges it
receives the values of remote sources. The rows of the hypergraph are the nodes, as targets, and a net connects a
source with all targets that read it: what is sent is the sum over sources of the parts that have one, minus 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.constants import ConstantOp, SparseConstantOp, is_constant
from ...dialect.ops.graphs import AttendEdgesOp, OverEdges, OverEdgesOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp
from ...dialect.provenance import node_name
from ...dialect.tensors import shape_of, shape_text
from ...frontend.errors import UnsupportedModelError
from ...passes.analysis.weights import connection_count, weight_of
from ...sparse.csr import CsrPattern
from ...theory.partition.partition import (
    LayerPattern,
    LayerShare,
    Owners,
    connections_of_parts,
    count_sent,
    used_by,
)
from .row_graph import Port, features_of, port_names

Nodes = NDArray[np.int64]
"""Numbers of nodes, ascending."""

EXPECTED = "the plan nodes expects sums over the edges of one graph, and layers of each node by itself"


def has_edges(module: ModuleOp) -> bool:
    """Return whether a module sums over the edges of a constant graph."""
    return any(isinstance(op, OverEdgesOp) and not op.of_call for op in module.walk())


@dataclass(frozen=True)
class NodeGraph:
    """Inputs and outputs [nodes, features], and ops in their order: sums over edges, and tiles of other layers."""

    nodes: int
    inputs: tuple[Port, ...]
    ops: tuple[OverEdges | TileOp, ...]
    outputs: tuple[Port, ...]

    @staticmethod
    def of(module: ModuleOp) -> "NodeGraph":
        """Return the graph of a module whose row-wise ops are in tiles.

        Raises:
            UnsupportedModelError: an op is no such sum and in no tile, or a value has not as many rows as all others.
        """
        func = next(op for op in module.body.block.ops if isinstance(op, FuncOp))
        ops = [op for op in func.body.block.ops if not isinstance(op, ConstantOp | SparseConstantOp | ReturnOp)]
        found = [op for op in ops if isinstance(op, TileOp) or (isinstance(op, OverEdges) and not op.of_call)]
        over_edges = [op for op in found if isinstance(op, OverEdges)]
        if not over_edges:
            raise UnsupportedModelError(f"the model has no sum over edges, {EXPECTED}")
        nodes = over_edges[0].edges.shape[0]
        for op in ops:
            if op not in found or (isinstance(op, OverEdges) and op.edges.shape != (nodes, nodes)):
                raise UnsupportedModelError(f"{_place(op)}{op.name} is over other nodes, {EXPECTED}")
            _check_values([*_values_of(op), *op.results], nodes, _place(op))
        end = func.body.block.last_op
        returned = list(end.operands) if isinstance(end, ReturnOp) else []
        _check_values([*func.args, *returned], nodes, "")
        inputs = zip(port_names(func.arg_attrs, len(func.args)), func.args, strict=True)
        outputs = zip(port_names(func.res_attrs, len(returned)), returned, strict=True)
        return NodeGraph(
            nodes,
            tuple(Port(name, (), value) for name, value in inputs),
            tuple(found),
            tuple(Port(name, (), value) for name, value in outputs),
        )

    @property
    def over_edges(self) -> tuple[OverEdges, ...]:
        return tuple(op for op in self.ops if isinstance(op, OverEdges))

    def pattern(self) -> LayerPattern:
        """Return the sources that nodes read, [targets, sources]: edges of all layers, and every node itself."""
        graphs = {op.graph: op.edges for op in self.over_edges}.values()
        own = np.arange(self.nodes)
        targets = np.concatenate([own, *(graph.columns for graph in graphs)])
        sources = np.concatenate([own, *(graph.rows for graph in graphs)])
        edges = np.unique(targets * self.nodes + sources)
        ends = np.cumsum(np.bincount(edges // self.nodes, minlength=self.nodes))
        return CsrPattern(np.append(0, ends), edges % self.nodes, self.nodes)


@dataclass(frozen=True)
class NodeOwners:
    """The part that owns each node, [nodes], of `part_count`."""

    graph: NodeGraph
    part_count: int
    owners: Owners

    @cached_property
    def pattern(self) -> LayerPattern:
        """The sources that nodes read, [targets, sources]."""
        return self.graph.pattern()

    def own(self, part: int) -> Nodes:
        """Return the nodes of a part."""
        return np.flatnonzero(self.owners == part)

    def needed(self, part: int) -> dict[int, Nodes]:
        """Return the remote sources of a part's own nodes, by owner."""
        used = np.zeros(self.graph.nodes, np.bool_)
        used[self.pattern.indices[np.repeat(self.owners == part, self.pattern.lengths)]] = True
        used[self.owners == part] = False
        nodes = np.flatnonzero(used)
        return {int(other): nodes[self.owners[nodes] == other] for other in np.unique(self.owners[nodes])}

    def wanted_of(self, part: int) -> dict[int, Nodes]:
        """Return the nodes of a part that others need, by the part that does."""
        used = used_by(self.pattern, self.owners, self.part_count)
        found = {other: np.flatnonzero(used[:, other] & (self.owners == part)) for other in range(self.part_count)}
        return {other: nodes for other, nodes in found.items() if other != part and len(nodes)}

    def shares(self) -> list[LayerShare]:
        """Return work and traffic of each part in each step, in products of two numbers and in values."""
        shares: list[LayerShare] = []
        sent_before: set[SSAValue] = set()
        for op in self.graph.ops:
            if isinstance(op, OverEdges):
                shares.append(self._over_edges(op, sent_before))
                sent_before.update(near_values(op))
                continue
            weights = [weight_of(layer.weight) for layer in op.walk() if isinstance(layer, LinearOp)]
            products = sum(connection_count(weight) for weight in weights if weight is not None)
            own = np.bincount(self.owners, minlength=self.part_count) * products
            shares.append(LayerShare(np.zeros((self.part_count,) * 2, np.int64), own, own))
        return shares

    def _over_edges(self, op: OverEdges, sent_before: set[SSAValue]) -> LayerShare:
        """Return the share of a sum; values that were sent for one before are there."""
        edges = CsrPattern(op.edges.pointers, op.edges.rows, self.graph.nodes)
        features = sum(features_of(value) for value in near_values(op) if value not in sent_before)
        sent = count_sent(self.pattern, self.owners, self.owners, self.part_count) * features
        work = connections_of_parts(edges, self.owners, self.part_count) * features_of(op.x)
        return LayerShare(sent, work, np.zeros_like(work))


def near_values(op: OverEdges) -> list[SSAValue]:
    """Return the values that a sum reads at the sources of edges, each once."""
    return list(dict.fromkeys((op.x, op.scores) if isinstance(op, AttendEdgesOp) else (op.x,)))


def _values_of(op: Operation) -> list[SSAValue]:
    return near_values(op) if isinstance(op, OverEdges) else list(op.operands)


def _check_values(values: Sequence[SSAValue], nodes: int, place: str) -> None:
    for value in values:
        shape = shape_of(value)
        if is_constant(value) or len(shape) != 2 or shape[0] != nodes:
            kind = "a constant" if is_constant(value) else "a value"
            raise UnsupportedModelError(f"{place}{kind} of shape {shape_text(shape)} for {nodes} nodes, {EXPECTED}")


def _place(op: Operation) -> str:
    return f"node {node_name(op)!r}: " if node_name(op) else ""
