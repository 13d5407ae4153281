"""Message passing over edges that a call brings, `edge_index` as an input: sums and maxima over what is sorted then.

```
messages = Gather(x, sources)  [* weights]                 weights [edges, 1], what else a call computes first
y = ScatterElements(zeros [nodes, features], Expand(targets), messages, "add")
```
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir
from xdsl.ir import SSAValue

from ....dialect.ops.constants import ConstantOp
from ....dialect.ops.graphs.edges_of_call import AggregateSortedOp, EdgeListOp, SortEdgesOp
from ....dialect.provenance import value_name
from ....dialect.shape_inference import described_by
from ....dialect.symbolic_sizes import DIMS, Size, SymbolicShape
from ...folding.known_sizes import is_known
from ..conversion import Conversion, NotCovered

LOWEST = -3.4e38
"""Values below this one stand for nothing in a maximum."""

MOST_BETWEEN = 4
"""Nodes between values of nodes and the sum over edges."""


SHAPING = ("Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that leave the values of [edges] and [edges, 1] as they are."""


class _Filled(NamedTuple):
    """A tensor of one number everywhere."""

    sizes: SymbolicShape | None
    """None where they are not known."""
    number: float


@dataclass
class _Messages:
    """Values of nodes, the number of the source of each edge, and its weight."""

    values: onnx_ir.Value
    sources: onnx_ir.Value | None = None
    weights: onnx_ir.Value | None = None
    nodes: list[onnx_ir.Node] = field(default_factory=list[onnx_ir.Node])


def aggregated_in_call(conversion: Conversion, *, maximum: bool) -> SSAValue:
    """Return the sums, or maxima, over edges whose ends are no constants.

    Raises:
        NotCovered: it is no such node.
    """
    targets = _targets(conversion)
    start = _start(conversion, maximum=maximum)
    updates = conversion.input(2)
    messages = None if updates is None else _messages(conversion, updates)
    if targets is None:
        raise NotCovered("the index is no constant, accepted is a target for each edge that all features share")
    if messages is None or messages.sources is None:
        raise NotCovered("what comes along the edges is not known, accepted is what Gather takes from nodes, weighted")
    x = conversion.tensor_of(messages.values)
    sizes = conversion.sizes(x)
    if len(sizes) != 2 or not is_known(sizes[1]) or start != sizes or conversion.integer("axis", 0) not in (0, -2):
        raise NotCovered("what edges are added to is not known, accepted are zeros for each node and feature")
    if maximum and messages.weights is not None:
        raise NotCovered("a maximum of weighted edges, accepted are edges without weights")
    edges = sorted_edges(conversion, x, EdgesOfCall(messages.sources, targets, messages.weights))
    conversion.replaces(messages.nodes)
    return conversion.emit(AggregateSortedOp(x, edges, maximum=maximum)).result


class EdgesOfCall(NamedTuple):
    """Edges of a call: the numbers of both ends of each, and its weight."""

    sources: onnx_ir.Value
    targets: onnx_ir.Value
    weights: onnx_ir.Value | None = None


def sorted_edges(conversion: Conversion, x: SSAValue, given: EdgesOfCall) -> SortEdgesOp:
    """Return the edges between the nodes of x sorted by their targets, as an earlier layer has them where it has.

    Raises:
        NotCovered: a layer computes them.
    """
    scope, nodes = conversion.scope, conversion.scope.argument_of_rows(x)
    ends = [scope.value_of(unshaped(conversion, value)) for value in (given.sources, given.targets)]
    if ends[0] is None or ends[1] is None:
        raise NotCovered("the ends of edges are not known before the layers")
    weights = None if given.weights is None else conversion.tensor_of(unshaped(conversion, given.weights))
    operands = [nodes, ends[0], ends[1], *([] if weights is None else [weights])]
    for use in nodes.uses:
        known = use.operation
        if isinstance(known, EdgeListOp) and known.parent is not None and _same(list(known.operands), operands):
            found = next((one.operation for one in known.sources.uses), None)
            if isinstance(found, SortEdgesOp):
                return found
    edges = EdgeListOp(nodes, ends[0], ends[1], weights)
    name = f"edges.{value_name(ends[0]) or given.sources.name}"
    edges.attributes[DIMS] = described_by([(Size.symbol(name),)] * 3)
    return conversion.emit(SortEdgesOp(nodes, conversion.emit(edges)))


def unshaped(conversion: Conversion, value: onnx_ir.Value) -> onnx_ir.Value:
    """Return what each edge has one entry of before it became [edges], [edges, 1] or [edges, 1, 1]."""
    while (node := value.producer()) is not None and node.domain == "" and node.op_type in SHAPING and node.inputs[0]:
        shape = conversion.scope.inferred_shape(node.inputs[0])
        if shape is None or len(shape) not in (1, 2, 3) or any(size != 1 for size in list(shape)[1:]):
            return value
        conversion.replaces([node])
        value = node.inputs[0]
    return value


def _same(left: list[SSAValue], right: list[SSAValue]) -> bool:
    """Return whether operands are the same; constants by their content."""
    return len(left) == len(right) and all(
        one is other
        or (
            isinstance(one.owner, ConstantOp)
            and isinstance(other.owner, ConstantOp)
            and one.owner.properties == other.owner.properties
        )
        for one, other in zip(left, right, strict=True)
    )


def _targets(conversion: Conversion) -> onnx_ir.Value | None:
    """Return the target of each edge [edges, 1] before it is spread over all features."""
    value = conversion.input(1)
    node = None if value is None else value.producer()
    # the rows of ScatterND's index are whole places: spread, they would be others
    if node is not None and (node.domain, node.op_type) == ("", "Expand") and conversion.node.op_type != "ScatterND":
        conversion.replaces([node])
        value = node.inputs[0]
    return value if value is not None and _is_column(conversion, value) else None


def _is_column(conversion: Conversion, value: onnx_ir.Value) -> bool:
    """Return whether a value is [edges, 1]."""
    shape = conversion.scope.inferred_shape(value)
    return shape is not None and len(shape) == 2 and shape[1] == 1


def _start(conversion: Conversion, *, maximum: bool) -> SymbolicShape | None:
    """Return the sizes of zeros that sums start from, or of what a maximum does."""
    value = conversion.input(0)
    lowered = None if value is None else value.producer()
    if maximum:
        if lowered is None or (lowered.domain, lowered.op_type) != ("", "ScatterElements"):
            return None
        reduction, lowest = lowered.attributes.get("reduction"), _filled(conversion, lowered.inputs[2])
        is_least = reduction is not None and reduction.as_string() == "min"
        if not is_least or lowest is None or lowest.number > LOWEST or lowered.inputs[1] is not conversion.input(1):
            return None
        conversion.replaces([lowered])
        value = lowered.inputs[0]
    filled = _filled(conversion, value)
    return filled.sizes if filled is not None and filled.number == 0.0 else None


def _filled(conversion: Conversion, value: onnx_ir.Value | None) -> _Filled | None:
    """Return what ConstantOfShape yields, or Expand of a number; where all sizes are known that is a constant."""
    node = None if value is None else value.producer()
    held = None if value is None else conversion.scope.constant_of(value)
    if held is not None and held.size and (held == held.flat[0]).all():
        return _Filled(tuple(Size.known(size) for size in held.shape), float(held.flat[0]))
    if node is None or node.domain != "" or node.op_type not in ("ConstantOfShape", "Expand"):
        return None
    shape = node.inputs[-1]
    known = None if shape is None else conversion.scope.shape_value_of(shape)
    if node.op_type == "Expand":
        array = None if node.inputs[0] is None else conversion.scope.constant_of(node.inputs[0])
        if array is None or array.size != 1:
            return None
        number = float(array.reshape(-1)[0])
    else:
        fill = node.attributes.get("value")
        number = 0.0 if fill is None else float(fill.as_tensor().numpy().reshape(-1)[0])
    conversion.replaces([node])
    return _Filled(None if known is None else known.sizes, number)


def _messages(conversion: Conversion, value: onnx_ir.Value) -> _Messages | None:
    """Return what travels along the edges."""
    found = _Messages(value)
    for _ in range(MOST_BETWEEN):
        node = found.values.producer()
        if node is None or node.domain != "" or None in node.inputs:
            return None
        first, *rest = (one for one in node.inputs if one is not None)
        found.nodes.append(node)
        match node.op_type:
            case "Identity":
                found.values = first
            case "Slice" if _is_whole(conversion, rest):
                found.values = first
            case "Mul" if found.weights is None:
                pair = next((one for one in ((first, rest[0]), (rest[0], first)) if _is_gathered(one[1])), None)
                if pair is None or not _is_weight(conversion, pair[0]):
                    return None
                found.weights, found.values = pair
            case "Gather" | "GatherND":
                found.values, found.sources = first, rest[0]
                return found if _gathers_rows(conversion, node, rest[0]) else None
            case _:
                return None
    return None


def _is_whole(conversion: Conversion, bounds: Sequence[onnx_ir.Value]) -> bool:
    """Return whether a Slice cuts messages to the shape of the index, as exporters write it: both are as many."""
    if len(bounds) != 2:
        return False
    starts, end = conversion.scope.constant_of(bounds[0]), bounds[1].producer()
    start = None if end is None else end.attributes.get("start")
    return (
        starts is not None
        and not starts.any()
        and end is not None
        and (end.domain, end.op_type) == ("", "Shape")
        and end.inputs[0] is conversion.input(1)
        and "end" not in end.attributes
        and (start is None or start.as_int() == 0)
    )


def _is_gathered(value: onnx_ir.Value) -> bool:
    node = value.producer()
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node is not None and node.op_type in ("Gather", "GatherND")


def _is_weight(conversion: Conversion, value: onnx_ir.Value) -> bool:
    """Return whether a factor is one number for each edge, or for all."""
    array = conversion.scope.constant_of(value)
    return array.size == 1 if array is not None else _is_column(conversion, value)


def _gathers_rows(conversion: Conversion, node: onnx_ir.Node, index: onnx_ir.Value) -> bool:
    if node.op_type == "GatherND":
        batch = node.attributes.get("batch_dims")
        return _is_column(conversion, index) and (batch is None or batch.as_int() == 0)
    axis, shape = node.attributes.get("axis"), conversion.scope.inferred_shape(index)
    return (0 if axis is None else axis.as_int()) in (0, -2) and shape is not None and len(shape) == 1
