"""Names of values that nodes read, also from inside of the graphs that they hold."""

from collections.abc import Iterator

from onnx import GraphProto, NodeProto


def names_read(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node reads of the graph around it."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            own = {name for inner in body.node for name in inner.output} | _given(body)
            yield from (name for inner in body.node for name in names_read(inner) if name not in own)
            yield from (output.name for output in body.output if output.name not in own)


def _given(graph: GraphProto) -> set[str]:
    return {value.name for value in (*graph.input, *graph.initializer)}
