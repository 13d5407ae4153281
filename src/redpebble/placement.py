"""Place of the work of a model after `optimize`: in sparse networks, or with the runtime, and why there."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Final

import onnx_ir
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from redpebble.dialect.ops.attention import Attention
from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.ops.graphs.attend_edges import OVER_EDGES
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayersOp
from redpebble.dialect.ops.sparse_network import SparseNetworkOp
from redpebble.dialect.provenance import node_key
from redpebble.frontend.import_model import Imported
from redpebble.frontend.multiply_adds import NodeWork, work_of_nodes
from redpebble.frontend.operators.quantized import YIELDS_CODES
from redpebble.frontend.translation import NO_CONVOLUTION, node_identity
from redpebble.kernels.families import is_dense
from redpebble.passes.deployment.form_sparse_networks import LEFT

UNKNOWN_OPERATOR: Final = "is not covered"
"""The reason of an operator that nothing knows."""

VAGUE: Final = frozenset({"", UNKNOWN_OPERATOR, YIELDS_CODES})
"""Reasons that only tell that a node is none that becomes a layer by itself."""

PRODUCTS_OF_CODES: Final = frozenset({"ConvInteger", "MatMulInteger", "QGemm", "QLinearMatMul"})
"""Operators that are part of a layer, which is made where floats are made of what they yield."""

MOST_BEHIND: Final = 64
"""Nodes between a product of codes and the floats that are made of it."""


@dataclass(frozen=True)
class Stayed:
    """Nodes of one operator that stay with the runtime for one reason."""

    operator: str
    nodes: int
    multiply_adds: int
    reason: str


@dataclass(frozen=True)
class Placement:
    """The work of a model, and how much of it sparse networks have taken.

    Work is counted before pruning, for a batch of 1 and 128 of every other free axis.
    """

    multiply_adds: int
    taken: int
    linear: int
    """Part of `multiply_adds` that constant weights do."""
    linear_taken: int
    stayed: tuple[Stayed, ...]
    """Operators that multiply and were not taken, most work first."""
    rows: int = 1
    """Rows that a layer with weights gets among those taken, on average: for a text as many as it has tokens."""
    nodes: int = 0
    """Nodes of the model, constants folded, and those of them that stay."""
    nodes_left: int = 0

    @property
    def share(self) -> float:
        """The share of the work that was taken; 1 where there is no work."""
        return self.taken / self.multiply_adds if self.multiply_adds else 1.0

    @property
    def linear_share(self) -> float:
        """The share of the work of linear layers that was taken; 1 where there is none."""
        return self.linear_taken / self.linear if self.linear else 1.0

    @property
    def bound(self) -> float:
        """Amdahl's bound: the speed-up if what was taken took no time, and all work took the same time each."""
        left = self.multiply_adds - self.taken
        return self.multiply_adds / left if left else inf


@dataclass(frozen=True)
class NodesLeft:
    """The nodes of a model that sparse networks have not taken."""

    model: onnx_ir.Model
    reasons: Mapping[int, str]
    """Position of such a node in the graph -> why."""


def left_alone(module: ModuleOp) -> str:
    """Return why convolutions were left alone; empty where they were not."""
    reasons = [op.attributes.get(LEFT) for op in module.walk()]
    return next((reason.data for reason in reasons if isinstance(reason, StringAttr)), "")


def nodes_left(module: ModuleOp, imported: Imported, convolutions_left: str = "") -> NodesLeft:
    """Return what a module that has been through the stage `extract` leaves; convolutions for a reason of their own."""
    reasons = _told_behind(imported.model, dict(_left(module, imported)))
    if convolutions_left:
        reasons = {at: convolutions_left if why == NO_CONVOLUTION else why for at, why in reasons.items()}
    return NodesLeft(imported.model, reasons)


def _told_behind(model: onnx_ir.Model, reasons: Mapping[int, str]) -> dict[int, str]:
    """Return reasons in which products on codes have those of what makes floats of them, where a layer would be."""
    nodes = list(model.graph)
    positions, told = {node: at for at, node in enumerate(nodes)}, dict(reasons)
    for at in reasons:
        if nodes[at].op_type == "QLinearConv":
            # it was opened, had there been enough zeros
            told[at] = NO_CONVOLUTION if told[at] in VAGUE else told[at]
        elif nodes[at].op_type in PRODUCTS_OF_CODES:
            told[at] = _reason_behind(nodes[at], positions, reasons) if reasons[at] in VAGUE else reasons[at]
    return told


def _reason_behind(product: onnx_ir.Node, positions: Mapping[onnx_ir.Node, int], reasons: Mapping[int, str]) -> str:
    """Return the reason of what makes floats of a product of codes, or of a node between that is not covered."""
    reason = ""
    for node in _behind(product):
        at = positions.get(node)
        reason = "" if at is None else reasons.get(at, "")
        if reason == UNKNOWN_OPERATOR:
            return f"{node.op_type}, which reads what it yields, is not covered"
    return reason if reason not in VAGUE else reasons[positions[product]]


def _behind(node: onnx_ir.Node) -> Iterator[onnx_ir.Node]:
    """Yield the nodes that read a product of codes, one the other, up to that which makes floats of it."""
    for _ in range(MOST_BEHIND):
        readers = [use.node for use in node.outputs[0].uses()]
        if not readers:
            return
        node = readers[0]
        yield node
        if node.op_type in ("DequantizeLinear", "Mul"):
            return


def placement_of(left: NodesLeft) -> Placement:
    """Return where the work of a model lies: its sizes are inferred, and constants folded, once more for that."""
    nodes = list(left.model.graph)
    work = work_of_nodes(left.model)
    stayed: dict[tuple[str, str], list[NodeWork]] = {}
    for node_index, reason in left.reasons.items():
        done = _work(nodes[node_index], work)
        if done is not None:
            stayed.setdefault((nodes[node_index].op_type, reason), []).append(done)
    lines = [Stayed(operator, len(done), _sum(done), reason) for (operator, reason), done in stayed.items()]
    outside = list(chain.from_iterable(stayed.values()))
    total, linear = _sum(work.values()), _sum(filter(_is_linear, work.values()))
    linear_left = _sum(filter(_is_linear, outside))
    weights = sum(done.weights for done in work.values()) - sum(done.weights for done in outside)
    return Placement(
        total,
        total - _sum(outside),
        linear,
        linear - linear_left,
        tuple(sorted(lines, key=lambda line: -line.multiply_adds)),
        max(1, round((linear - linear_left) / max(1, weights))),
        len(nodes),
        len(left.reasons),
    )


def _sum(work: Iterable[NodeWork]) -> int:
    return sum(done.multiply_adds for done in work)


def _is_linear(work: NodeWork) -> bool:
    return work.is_linear


def _work(node: onnx_ir.Node, work: Mapping[str, NodeWork]) -> NodeWork | None:
    return work.get(node.outputs[0].name or "") if node.outputs else None


def _left(module: ModuleOp, imported: Imported) -> Iterator[tuple[int, str]]:
    """Yield the nodes that are outside of sparse networks, by position, and why."""
    positions = {node_identity(node): node_index for node_index, node in enumerate(imported.model.graph)}
    for op in module.walk():
        if isinstance(op, ForeignOp):
            node_index = op.position.value.data
            yield node_index, imported.reasons.get(node_index, "")
        elif isinstance(op, LinearOp | Attention | QuantizedLayersOp | OVER_EDGES) and not isinstance(
            op.parent_op(), SparseNetworkOp
        ):
            node_index = positions.get(node_key(op))
            if node_index is not None:
                yield node_index, _reason(op)


def _reason(op: Operation) -> str:
    if isinstance(op, LinearOp) and op.kernel is not None and any(map(is_dense, op.kernel.choices.values())):
        return "no sparse kernel is predicted to be faster for every batch"
    return "no sparse layer reads or feeds it"
