"""Nodes that stay as they are: their names, and the values that they read.

Nodes that compute the same from the same values are kept once. A node `Shape` reads an earlier value of the same sizes,
so that it waits for no layer:

```
n = Shape(h)[0]    of h = x W [nodes, 16]: x has as many
e = Shape(m)[0]    of m = Gather(h, sources): sources have as many
```
"""

from collections.abc import Hashable, Iterator

import onnx_ir
from xdsl.ir import SSAValue

from ..dialect.ops.foreign import INT64, ForeignOp
from ..dialect.semantics.array_operators import OPERATORS
from ..dialect.tensors import is_f32_tensor
from .folding.known_constants import initializer_of
from .operators.scope import ValueScope

MOST_ENTRIES = 64
"""Entries of a constant that is compared: axes and sizes, not tables."""


class EqualNodes:
    """The nodes kept so far, by what they compute."""

    def __init__(self) -> None:
        self._known: dict[Hashable, ForeignOp] = {}

    def first_of(self, node: onnx_ir.Node, op: ForeignOp, scope: ValueScope) -> ForeignOp:
        """Return the first op that computes what `op` does, which stands for `node`: itself where it is new."""
        if node.domain != "" or node.op_type not in OPERATORS or any(one.is_graph_output() for one in node.outputs):
            return op
        reads = {name.data: value for name, value in zip(op.names, op.reads, strict=True)}
        inputs = [_key(value, reads, scope) for value in node.inputs]
        if None in inputs:
            return op
        attributes = tuple(sorted((name, str(attribute.value)) for name, attribute in node.attributes.items()))
        key = (node.op_type, attributes, tuple(inputs), len(node.outputs))
        return self._known.setdefault(key, op)


def _key(value: onnx_ir.Value | None, reads: dict[str, SSAValue], scope: ValueScope) -> Hashable:
    """Return what tells an input from others; None for a constant of many entries."""
    if value is None:
        return ()
    if value.name in reads:
        return reads[value.name]
    array = scope.constant_of(value)
    if array is None or array.size > MOST_ENTRIES:
        return None
    return array.dtype.str, array.shape, array.tobytes()


def source_of_shape(node: onnx_ir.Node, operand: SSAValue, scope: ValueScope) -> SSAValue:
    """Return a value that was defined before `operand` and has the sizes that a node Shape is asked for.

    That is one of the same shape, or, where only the first size is of use, one with as many rows.
    """
    value = node.inputs[0]
    shape = None if value is None else scope.inferred_shape(value)
    if value is None or shape is None or not _only_first(node, len(shape), scope):
        return scope.first_of_shape(operand)
    gather = value.producer()
    if gather is not None and (gather.domain, gather.op_type) == ("", "Gather") and len(shape) == 2:
        axis, index = gather.attributes.get("axis"), gather.inputs[1]
        entries = None if index is None else scope.inferred_shape(index)
        known = None if index is None or scope.constant_of(index) is not None else scope.value_of(index)
        is_rows = (0 if axis is None else axis.as_int()) in (0, -2) and entries is not None and len(entries) == 1
        if is_rows and known is not None and known.type == INT64 and _counts_from_front(node, scope):
            # one size fewer than was stated
            node.outputs[0].shape = None
            return known
    fewer = len(shape) > 2 and _counts_from_front(node, scope)
    has_rows = is_f32_tensor(operand.type) and (len(shape) == 2 or fewer)
    found = scope.argument_of_rows(operand) if has_rows else operand
    if fewer and found is not operand:
        node.outputs[0].shape = None
    return scope.first_of_shape(operand) if found is operand else found


def _only_first(node: onnx_ir.Node, rank: int, scope: ValueScope) -> bool:
    """Return whether nothing but the first size of a shape is used."""
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    if end is not None and (0 if start is None else start.as_int()) in (0, -rank) and end.as_int() in (1, 1 - rank):
        return True
    return not node.outputs[0].is_graph_output() and all(
        _takes_first(use.node, rank, scope) for use in node.outputs[0].uses()
    )


def _takes_first(node: onnx_ir.Node, rank: int, scope: ValueScope) -> bool:
    """Return whether a node takes the first entry of a shape, and no other one."""
    numbers = [_numbers(value, scope) for value in node.inputs[1:]]
    match node.op_type:
        case "Gather":
            return numbers[0] in ([0], [-rank])
        case "Slice":
            plain = numbers[2:] in ([], [[0]], [[0], [1]])
            return plain and numbers[0] in ([0], [-rank]) and numbers[1] in ([1], [1 - rank])
        case _:
            return False


def _counts_from_front(node: onnx_ir.Node, scope: ValueScope) -> bool:
    """Return whether a shape may lose its last size, as nothing counts from there."""
    stated = [node.attributes[name].as_int() for name in ("start", "end") if name in node.attributes]
    taken = [_numbers(value, scope) for use in node.outputs[0].uses() for value in use.node.inputs[1:3]]
    return all(number >= 0 for number in (*stated, *(one for found in taken for one in found or [-1])))


def _numbers(value: onnx_ir.Value | None, scope: ValueScope) -> list[int] | None:
    array = None if value is None else scope.constant_of(value)
    return None if array is None or array.dtype.kind != "i" else [int(one) for one in array.reshape(-1)]


def operator_text(node: onnx_ir.Node) -> str:
    """Return domain and operator: `ai.onnx::Conv`."""
    return f"{node.domain or 'ai.onnx'}::{node.op_type}"


def values_read(node: onnx_ir.Node) -> list[onnx_ir.Value]:
    """Return the values a node reads, each once: its inputs, then what its subgraphs use of the graph around it."""
    inner = {value for graph in _subgraphs(node) for value in _defined(graph)}
    captured = (value for graph in _subgraphs(node) for value in _used(graph) if value not in inner)
    return list(dict.fromkeys((*filter(None, node.inputs), *captured)))


def _subgraphs(node: onnx_ir.Node) -> Iterator[onnx_ir.Graph]:
    """Yield the graphs inside of a node, and those inside of their nodes."""
    for attribute in node.attributes.values():
        match attribute.type:
            case onnx_ir.AttributeType.GRAPH:
                graphs = [attribute.as_graph()]
            case onnx_ir.AttributeType.GRAPHS:
                graphs = attribute.as_graphs()
            case _:
                continue
        for graph in graphs:
            yield graph
            for nested in graph:
                yield from _subgraphs(nested)


def _defined(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _used(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Value]:
    for node in graph:
        yield from filter(None, node.inputs)
    yield from graph.outputs


def give_outputs_nodes(model: onnx_ir.Model) -> None:
    """Let a node yield each output that is a constant the dialect cannot hold (an int64, say), in place.

    before: `=> (y) <int64 y = {1}>`    after: `=> (y) <int64 y_constant = {1}> { y = Identity(y_constant) }`
    """
    graph = model.graph
    for index, output in enumerate(graph.outputs):
        name, tensor = output.name or "", output.const_value
        if tensor is None or tensor.dtype == onnx_ir.DataType.FLOAT or output.is_graph_input():
            continue
        constant = initializer_of(f"{name}_constant", tensor)
        graph.register_initializer(constant)
        node = onnx_ir.node("Identity", [constant])
        result = node.outputs[0]
        result.type, result.shape = output.type, output.shape
        graph.outputs[index] = result
        output.replace_all_uses_with(constant)
        del graph.initializers[name]
        result.name = name
        graph.append(node)
