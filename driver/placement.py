"""Place of the work of a model after `optimize`: in sparse networks, or with the runtime, and why there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Final, NamedTuple

import onnx_ir
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from ..dialect.ops.attention import Attention
from ..dialect.ops.foreign import ForeignOp
from ..dialect.ops.graphs import OverEdgesOp
from ..dialect.ops.layers import LinearOp
from ..dialect.ops.recurrences import RecurrenceOp
from ..dialect.ops.sparse_network import SparseNetworkOp
from ..dialect.provenance import node_key, value_name
from ..export.sparse_networks.node_format import DOMAIN
from ..frontend.import_model import Imported
from ..frontend.multiply_adds import MULTIPLYING, NodeWork, work_of_nodes
from ..frontend.operators.quantized import NO_KERNEL_OF_BYTES, YIELDS_CODES
from ..frontend.operators.recurrences import NO_KERNEL
from ..frontend.operators.table import LAYERS
from ..frontend.sparse_weights import CONVOLUTIONS, LEAST_ZEROS, all_dense, weight_zeros
from ..frontend.translation import NO_CONVOLUTION, NO_MOVES, node_identity
from ..passes.deployment.form_sparse_networks import LEFT

UNKNOWN_OPERATOR: Final = "is not covered"
"""The reason of an operator that nothing knows."""

VAGUE: Final = frozenset({"", UNKNOWN_OPERATOR, YIELDS_CODES})
"""Reasons that only tell that a node is none that becomes a layer by itself."""

PRODUCTS_OF_CODES: Final = frozenset({"ConvInteger", "MatMulInteger", "QGemm", "QLinearMatMul"})
"""Operators that are part of a layer, which is made where floats are made of what they yield."""

NO_NEIGHBOUR: Final = "no sparse layer reads or feeds it"

DENSE: Final = "dense"
"""The reason of layers with hardly any zeros."""

NOT_FASTER: Final = frozenset({NO_KERNEL, NO_KERNEL_OF_BYTES, NO_NEIGHBOUR, NO_CONVOLUTION, NO_MOVES})
"""Reasons of layers that are covered, and that more zeros would make faster."""

MOST_BEHIND: Final = 64
"""Nodes between a product of codes and the floats that are made of it."""


MOST_REASONS: Final = 2
"""Reasons in one line: those of most work."""


@dataclass(frozen=True)
class Stayed:
    """Nodes of one operator that stay with the runtime for one reason."""

    operator: str
    nodes: int
    multiply_adds: int
    reason: str
    zeros: float | None = None
    """Share of zeros in the weights of layers that are dense; None for what stays for another reason."""


class _Outside(NamedTuple):
    """Work of a node that stays, and the share of zeros in its weight where it is dense."""

    work: NodeWork
    zeros: float | None


@dataclass(frozen=True)
class Placement:
    """The work of a model, and how much of it sparse networks have taken.

    Work is counted before pruning, for one batch, of 1 unless stated, and 128 of every other free axis.
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
    layers: int = 0
    """Nodes with constant weights, and those of them that were taken."""
    layers_taken: int = 0
    uncounted: int = 0
    """Nodes that stay and multiply matrices, whose sizes are not known: their work is part of no number here."""
    convolutions: int = 0
    """Layers that are convolutions, and those of them that were taken."""
    convolutions_taken: int = 0

    def __str__(self) -> str:
        """Return a line: the layers that were taken, their share of the work, and why most of the others stay."""
        counted = f"{self.counted}, " if self.layers else ""
        return f"{counted}{100 * self.share:.0f} % of the multiply-adds{self.uncounted_text}{self._left}"

    @property
    def counted(self) -> str:
        """The layers that were taken, of how many: `41 of 53 convolutions and 1 of 2 other layers`."""
        others, name = self.layers - self.convolutions, "other layers" if self.convolutions else "layers"
        parts = [f"{self.convolutions_taken} of {self.convolutions} convolutions"] if self.convolutions else []
        if others or not parts:
            parts.append(f"{self.layers_taken - self.convolutions_taken} of {others} {name}")
        return " and ".join(parts)

    @property
    def _left(self) -> str:
        """The operators that stay, most work first, with their reasons; empty where none does."""
        named = self.stayed[:MOST_REASONS]
        told = [f"{line.nodes} {line.operator}: {line.reason or UNKNOWN_OPERATOR}" for line in named]
        more = sum(line.nodes for line in self.stayed[MOST_REASONS:])
        told += [f"{more} more nodes"] if more else []
        return "; left: " + ", ".join(told) if told else ""

    @property
    def uncounted_text(self) -> str:
        """Return a remark on the share, empty if all work was counted."""
        return f" that could be counted ({self.uncounted} nodes could not)" if self.uncounted else ""

    @property
    def share(self) -> float:
        """The share of the work that was taken; 1 where there is no work, 0 where none could be counted."""
        return self.taken / self.multiply_adds if self.multiply_adds else float(not self.uncounted)

    @property
    def linear_share(self) -> float:
        """The share of the work of linear layers that was taken; 1 where there is none, 0 where none was counted."""
        return self.linear_taken / self.linear if self.linear else float(not self.uncounted)

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
    waiting: int = 0
    """Number of nodes that wait for the sizes of an image."""


def nothing_to_form(model: onnx_ir.Model, layer_count: int) -> str:
    """Return why a model of which no sparse network was made has none more; `layer_count` are those that were read."""
    made = sum(node.domain == DOMAIN for node in model.graph)
    if made:
        return f"optimized before, {made} of its nodes {'are sparse networks' if made > 1 else 'is a sparse network'}"
    layers = (node for node in model.graph if (node.domain, node.op_type) in LAYERS)
    shares = [share for node in layers if (share := weight_zeros(node, model.ir_version)) is not None]
    if shares and max(shares) < LEAST_ZEROS:
        return all_dense(max(shares))
    return "no layer is predicted to gain from sparse kernels" if layer_count else "no layer is covered"


def left_alone(module: ModuleOp) -> str:
    """Return why convolutions were left alone; empty where they were not."""
    reasons = [op.attributes.get(LEFT) for op in module.walk()]
    return next((reason.data for reason in reasons if isinstance(reason, StringAttr)), "")


def nodes_left(module: ModuleOp, imported: Imported, convolutions_left: str = "") -> NodesLeft:
    """Return the nodes left over after the stage `extract`, with reasons; convolutions have their own."""
    reasons = _told_behind(imported.model, dict(_left(module, imported)))
    if convolutions_left:
        reasons = {at: convolutions_left if why == NO_CONVOLUTION else why for at, why in reasons.items()}
    return NodesLeft(imported.model, reasons, len(imported.waiting & reasons.keys()))


def _told_behind(model: onnx_ir.Model, reasons: Mapping[int, str]) -> dict[int, str]:
    """Return reasons in which an integer product has the reason of its dequantizing node, the end of a layer."""
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
    """Return the reason of the node that dequantizes an integer product, or of an unsupported node before it."""
    reason = ""
    for node in _behind(product):
        at = positions.get(node)
        reason = "" if at is None else reasons.get(at, "")
        if reason == UNKNOWN_OPERATOR:
            return f"{node.op_type}, which reads its result, is not covered"
    return reason if reason not in VAGUE else reasons[positions[product]]


def _behind(node: onnx_ir.Node) -> Iterator[onnx_ir.Node]:
    """Yield the chain of nodes behind an integer product, up to the node that dequantizes it."""
    for _ in range(MOST_BEHIND):
        readers = [use.node for use in node.outputs[0].uses()]
        if not readers:
            return
        node = readers[0]
        yield node
        if node.op_type in ("DequantizeLinear", "Mul"):
            return


def placement_of(left: NodesLeft, batch: int = 1) -> Placement:
    """Return where the work of a model lies: its sizes are inferred, and constants folded, once more for that."""
    nodes = list(left.model.graph)
    work = work_of_nodes(left.model, batch)
    stayed: dict[tuple[str, str], list[_Outside]] = {}
    for node_index, reason in left.reasons.items():
        node = nodes[node_index]
        done = _work(node, work)
        if done is not None:
            zeros = _dense_zeros(node, left.model.ir_version) if reason in NOT_FASTER else None
            key = node.op_type, reason if zeros is None else DENSE
            stayed.setdefault(key, []).append(_Outside(done, zeros))
    uncounted = sum(nodes[at].op_type in MULTIPLYING and _work(nodes[at], work) is None for at in left.reasons)
    lines = [_line(operator, reason, group) for (operator, reason), group in stayed.items()]
    outside = [one.work for one in chain.from_iterable(stayed.values())]
    total, linear = _sum(work.values()), _sum(filter(_is_linear, work.values()))
    linear_left = _sum(filter(_is_linear, outside))
    layers = sum(map(_is_linear, work.values()))
    convolutions = [index for index, node in enumerate(nodes) if _is_convolution(node) and _work(node, work)]
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
        layers,
        layers - sum(map(_is_linear, outside)),
        uncounted,
        len(convolutions),
        len({*convolutions} - left.reasons.keys()),
    )


def _is_convolution(node: onnx_ir.Node) -> bool:
    return (node.domain, node.op_type) in CONVOLUTIONS


def _dense_zeros(node: onnx_ir.Node, version: int) -> float | None:
    """Return the share of zeros in the weight of a dense layer; None for what has more zeros, or no weight."""
    zeros = weight_zeros(node, version)
    return zeros if zeros is not None and zeros < LEAST_ZEROS else None


def _line(operator: str, reason: str, group: Sequence[_Outside]) -> Stayed:
    """Return the line of nodes of one operator and reason; dense layers have their zeros in common."""
    dense = [(one.work.weights, one.zeros) for one in group if one.zeros is not None]
    zeros = sum(size * share for size, share in dense) / max(1, sum(size for size, _ in dense)) if dense else None
    told = reason if zeros is None else f"{reason}: {100 * zeros:.0f} % zeros; redpebble prune makes more"
    return Stayed(operator, len(group), _sum(one.work for one in group), told, zeros)


def _sum(work: Iterable[NodeWork]) -> int:
    return sum(done.multiply_adds for done in work)


def _is_linear(work: NodeWork) -> bool:
    return work.is_linear


def _work(node: onnx_ir.Node, work: Mapping[str, NodeWork]) -> NodeWork | None:
    return work.get(node.outputs[0].name or "") if node.outputs else None


def _left(module: ModuleOp, imported: Imported) -> Iterator[tuple[int, str]]:
    """Yield the nodes that are outside of sparse networks, by position, and why."""
    nodes = list(imported.model.graph)
    positions = {node_identity(node): node_index for node_index, node in enumerate(nodes)}
    yielding = {value.name: node_index for node_index, node in enumerate(nodes) for value in node.outputs}
    for op in module.walk():
        if isinstance(op, ForeignOp):
            node_index = op.position.value.data
            yield node_index, imported.reasons.get(node_index, "")
        elif isinstance(op, LinearOp | Attention | OverEdgesOp | RecurrenceOp) and not isinstance(
            op.parent_op(), SparseNetworkOp
        ):
            node_index = positions.get(node_key(op))
            if node_index is None:
                node_index = _layer_before(yielding.get(value_name(op.results[0])), nodes, positions)
            if node_index is not None:
                yield node_index, _reason(op)


def _layer_before(node_index: int | None, nodes: Sequence[onnx_ir.Node], positions: Mapping[str, int]) -> int | None:
    """Return the layer without a name that yields a value: what was fused into it comes behind it."""
    for _ in range(MOST_BEHIND):
        node = None if node_index is None else nodes[node_index]
        if node is None or (node.domain, node.op_type) in LAYERS:
            return node_index
        before = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        node_index = None if before is None else positions.get(node_identity(before))
    return None


def _reason(op: Operation) -> str:
    if isinstance(op, RecurrenceOp) or (isinstance(op, LinearOp) and op.kernel is not None and op.times is None):
        return NO_KERNEL
    return NO_NEIGHBOUR
