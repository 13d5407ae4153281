"""Models in float16 or bfloat16 compute in float32: their values, weights and casts become float32.

before: `x [float16]   y = MatMul(x, w)  <float16 w>`
after: `x [float16]   a = Cast<to=float>(x)   b = MatMul(a, w)   y = Cast<to=float16>(b)  <float w>`

A CPU has no float16 arithmetic of its own: onnxruntime puts such casts around every node. Results are at least as
precise, and an overflow beyond 65504 does not happen.
"""

from collections.abc import Iterator
from copy import copy
from typing import Final

import numpy as np
import onnx_ir

HALVES: Final = frozenset({onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16})

STATING: Final = ("to", "dtype", "output_dtype")
"""Attributes that name the element type of a node's result."""


def widen(model: onnx_ir.Model) -> bool:
    """Let the model compute in float32, in place; inputs and outputs keep their types. Return whether it changed."""
    graphs = [*model.graphs()]
    bodies = [*graphs, *(function.graph for function in model.functions.values())]
    if not any(_holds_halves(graph) for graph in bodies) or _is_wide(model):
        return False
    edges = (*model.graph.inputs, *model.graph.outputs)
    kept = {value: value.dtype for value in edges if value.dtype is not None and value.dtype in HALVES}
    for graph in bodies:
        for value in (*graph.inputs, *graph.initializers.values()):
            _widen_value(value)
        for node in graph:
            _widen_node(node)
    _cast_inputs(model.graph, kept)
    _cast_outputs(model.graph, kept)
    return True


def _holds_halves(graph: onnx_ir.Graph) -> bool:
    return any(value.dtype in HALVES for value in _values(graph)) or _has_half_attributes(graph)


def _has_half_attributes(graph: onnx_ir.Graph) -> bool:
    return any(
        attribute.type == onnx_ir.AttributeType.TENSOR and attribute.as_tensor().dtype in HALVES
        for node in graph
        for attribute in node.attributes.values()
        if not attribute.is_ref()
    )


def _is_wide(model: onnx_ir.Model) -> bool:
    """Return whether halves are at the edges of the model only, where casts read and yield them."""
    graph, casts = model.graph, set[onnx_ir.Value | None]()
    for node in graph:
        if (node.domain, node.op_type) == ("", "Cast"):
            casts.update(node.inputs[:1], node.outputs)
    apart = [one for one in (*model.graphs(), *(body.graph for body in model.functions.values())) if one is not graph]
    edges = {*graph.inputs, *graph.outputs}
    inside = (value for value in _values(graph) if value.dtype in HALVES and not _is_rounded(value))
    return not (_has_half_attributes(graph) or any(_holds_halves(one) for one in apart)) and all(
        value in edges
        and value in casts
        and not value.is_initializer()
        and all(use.node.op_type == "Cast" and use.node.domain == "" for use in value.uses())
        for value in inside
    )


def is_rounding(node: onnx_ir.Node) -> bool:
    """Return whether a node casts float32 to bfloat16, only for other ones to cast it back: so values are rounded."""
    target = node.attributes.get("to")
    if (node.domain, node.op_type) != ("", "Cast") or target is None or target.is_ref():
        return False
    result, x = node.outputs[0], node.inputs[0]
    return (
        target.as_int() == onnx_ir.DataType.BFLOAT16
        and (x is not None and x.dtype in (None, onnx_ir.DataType.FLOAT))
        and not result.is_graph_output()
        and bool(result.uses())
        and all(_casts_to_float(use.node) for use in result.uses())
    )


def _is_rounded(value: onnx_ir.Value) -> bool:
    node = value.producer()
    return node is not None and is_rounding(node)


def _casts_to_float(node: onnx_ir.Node) -> bool:
    target = node.attributes.get("to")
    if (node.domain, node.op_type) != ("", "Cast") or target is None or target.is_ref():
        return False
    return target.as_int() == onnx_ir.DataType.FLOAT


def _values(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    yield from (output for node in graph for output in node.outputs)


def _unused(graph: onnx_ir.Graph, name: str) -> str:
    """Return a name, longer where one of the graph's values has it."""
    names = {value.name for value in _values(graph)}
    while name in names:
        name += "_"
    return name


def _widen_value(value: onnx_ir.Value) -> None:
    tensor = value.const_value
    if tensor is not None and tensor.dtype in HALVES:
        value.const_value = _as_float(tensor)
    if value.dtype in HALVES:
        # a type of its own: copies of a model share their types with it
        value.type = copy(value.type)
        value.dtype = onnx_ir.DataType.FLOAT


def _as_float(tensor: onnx_ir.TensorProtocol) -> onnx_ir.TensorProtocol:
    return onnx_ir.tensor(tensor.numpy().astype(np.float32), name=tensor.name)


def _widen_node(node: onnx_ir.Node) -> None:
    for output in node.outputs:
        _widen_value(output)
    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            continue
        if attribute.type == onnx_ir.AttributeType.TENSOR and attribute.as_tensor().dtype in HALVES:
            node.attributes[name] = onnx_ir.AttrTensor(name, _as_float(attribute.as_tensor()))
        elif name in STATING and attribute.type == onnx_ir.AttributeType.INT and attribute.as_int() in HALVES:
            node.attributes[name] = onnx_ir.AttrInt64(name, int(onnx_ir.DataType.FLOAT))


def _cast_inputs(graph: onnx_ir.Graph, kept: dict[onnx_ir.Value, onnx_ir.DataType]) -> None:
    """Let what reads an input of half precision read its cast."""
    for value in graph.inputs:
        if value not in kept or value.is_initializer():
            continue
        cast = _cast(value, onnx_ir.DataType.FLOAT, _unused(graph, f"{value.name}_as_float"))
        value.replace_all_uses_with(cast.outputs[0])
        cast.replace_input_with(0, value)
        graph.insert_before(graph[0], cast) if len(graph) else graph.append(cast)
        value.type = onnx_ir.TensorType(kept[value])


def _cast_outputs(graph: onnx_ir.Graph, kept: dict[onnx_ir.Value, onnx_ir.DataType]) -> None:
    """Give outputs the type that they had."""
    for index, value in enumerate(graph.outputs):
        kind = kept.get(value)
        if kind is None or value.is_graph_input():
            continue
        name, value.name = value.name, _unused(graph, f"{value.name}_as_float")
        cast = _cast(value, kind, name or "")
        graph.append(cast)
        graph.outputs[index] = cast.outputs[0]


def _cast(value: onnx_ir.Value, kind: onnx_ir.DataType, name: str) -> onnx_ir.Node:
    node = onnx_ir.node("Cast", [value], {"to": int(kind)}, name=f"{name}_cast")
    result = node.outputs[0]
    result.name, result.type, result.shape = name, onnx_ir.TensorType(kind), value.shape
    return node
