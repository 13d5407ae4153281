"""The tensors of a model, wherever they stand: initializers and attributes, of graphs, subgraphs and functions."""

from collections.abc import Iterable, Iterator, MutableMapping
from itertools import chain
from typing import NamedTuple

import onnx_ir

Tensor = onnx_ir.TensorProtocol


class HeldTensor(NamedTuple):
    """A tensor, and the words by which a message names it."""

    name: str
    tensor: Tensor


def held_tensors(model: onnx_ir.Model) -> Iterator[HeldTensor]:
    """Yield every tensor of a model."""
    for graph in model.graphs():
        yield from _of_graph(graph, graph, "")
    for function in model.functions.values():
        where = f" in function {function.name!r}"
        for attribute in function.attributes.values():
            yield from (HeldTensor(f"{attribute.name} by default{where}", one) for one in _of_attribute(attribute))
        # a function is its nodes, and its graph holds what onnx-ir adds to them
        yield from _of_graph(function.graph, function, where)
        for graph in function.subgraphs():
            yield from _of_graph(graph, graph, where)


def _of_graph(graph: onnx_ir.Graph, nodes: Iterable[onnx_ir.Node], where: str) -> Iterator[HeldTensor]:
    for value in graph.initializers.values():
        if value.const_value is not None:
            yield HeldTensor(f"{value.name}{where}", value.const_value)
    for node in nodes:
        for attribute in node.attributes.values():
            for tensor in _of_attribute(attribute):
                yield HeldTensor(f"{attribute.name} of node {node.name!r}{where}", tensor)


def _of_attribute(attribute: onnx_ir.Attr) -> Iterable[Tensor]:
    if attribute.is_ref() or attribute.value is None:
        return ()
    match attribute.type:
        case onnx_ir.AttributeType.TENSOR:
            return (attribute.as_tensor(),)
        case onnx_ir.AttributeType.TENSORS:
            return attribute.as_tensors()
        case _:
            return ()


def put_attributes_in_place(model: onnx_ir.Model) -> None:
    """Read the tensors of attributes, and all those of functions, that lie in files: only initializers may stay there.

    Whoever writes the model to another folder would leave such a file behind.
    """
    for function in model.functions.values():
        _replace(function.attributes)
        for graph in (function.graph, *function.subgraphs()):
            for value in graph.initializers.values():
                if isinstance(value.const_value, onnx_ir.ExternalTensor):
                    value.const_value = _in_place(value.const_value)
    functions = (function.all_nodes() for function in model.functions.values())
    for node in chain(model.graph.all_nodes(), *functions):
        _replace(node.attributes)


def _replace(attributes: MutableMapping[str, onnx_ir.Attr]) -> None:
    for name, attribute in [*attributes.items()]:
        tensors = [*_of_attribute(attribute)]
        if any(isinstance(tensor, onnx_ir.ExternalTensor) for tensor in tensors):
            held = [_in_place(tensor) for tensor in tensors]
            is_list = attribute.type == onnx_ir.AttributeType.TENSORS
            attributes[name] = onnx_ir.AttrTensors(name, held) if is_list else onnx_ir.AttrTensor(name, held[0])


def _in_place(tensor: Tensor) -> Tensor:
    return onnx_ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)
