"""Values that a node reads, those that its subgraphs capture included."""

from collections.abc import Iterator, Mapping

import onnx_ir as ir


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the graphs that are attributes of a node."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
            yield from attribute.as_graphs()


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node and its subgraphs read, values defined inside a subgraph included."""
    yield from (value for value in node.inputs if value is not None)
    for graph in subgraphs(node):
        for inner in graph:
            yield from values_read(inner)
        yield from graph.outputs


def defined_inside(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that the subgraphs of a node define."""
    for graph in subgraphs(node):
        yield from graph.inputs
        yield from graph.initializers.values()
        for inner in graph:
            yield from inner.outputs
            yield from defined_inside(inner)


def replace_reads(node: ir.Node, replacements: Mapping[ir.Value, ir.Value]) -> None:
    """Let a node, and everything in its subgraphs, read other values."""
    for index, value in enumerate(node.inputs):
        if value is not None and value in replacements:
            node.replace_input_with(index, replacements[value])
    for graph in subgraphs(node):
        for inner in graph:
            replace_reads(inner, replacements)
        for index, value in enumerate(graph.outputs):
            if value in replacements:
                graph.outputs[index] = replacements[value]
