"""Nodes that stay as they are: what they are called, and which values they read."""

from collections.abc import Iterator

import onnx_ir

from ..folding.known_constants import initializer_of


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
