"""Types and shapes by ONNX's own inference, and what it says of nodes that contradict themselves."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import onnx
import onnx_ir

from ..errors import InvalidModelError
from ..folding.inferred_values import LONGEST, inferred
from ..reading.function_calls import DEEPEST, MOST_NODES, call_tree
from ..reading.map_types import has_map
from .stated_sizes import add_stated_sizes
from .table import CONVERTERS

LARGE = 4096
"""Bytes from which an initializer's values are left out of what ONNX's inference gets to see."""

FAULT: Final = re.compile(r"\(op_type:(?P<operator>\w+)(?:, node name: (?P<node>[^)]*))?\): (?P<reason>[^\n]*)")


class Inferred(NamedTuple):
    """The type and the shape of a value, as far as they are known."""

    kind: onnx_ir.TypeProtocol | None
    shape: onnx_ir.Shape | None


def check_operators(model: onnx_ir.Model) -> None:
    """Refuse a model in which an operator that is covered gets types or shapes that it does not take.

    What other operators get is not ours to judge.

    Raises:
        InvalidModelError: names the first such node.
    """
    skeleton = _skeleton(model)
    _forget_statements(skeleton.graph)
    try:
        inferred(skeleton, checked=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        fault = FAULT.search(str(error))
        if fault is None or ("", fault["operator"]) not in CONVERTERS:
            return
        name = f"node {fault['node']!r}: " if fault["node"] else ""
        raise InvalidModelError(f"{name}operator {fault['operator']}: {_reason(fault['reason'])}") from error


def _reason(text: str) -> str:
    """Return what ONNX says without the tags that it puts in front, as part of a message of ours."""
    reason = re.sub(r"\[\w+\]\s*", "", text).strip().rstrip(".")
    return reason[:1].lower() + reason[1:]


def _forget_statements(graph: onnx.GraphProto) -> None:
    """Drop the shapes that a graph states of what it computes: onnxruntime, too, only warns of wrong ones."""
    del graph.value_info[:]
    for output in graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")


def infer_types(model: onnx_ir.Model, *, trusted: bool = True) -> Mapping[str, Inferred]:
    """Return type and shape of every value of the main graph, by name: ONNX's inference and what weights state.

    Unless `trusted`, what the model states of its own results counts for nothing.
    """
    skeleton = _skeleton(model)
    if not trusted:
        _forget_statements(skeleton.graph)
    found = _inferred(skeleton)
    while add_stated_sizes(found.graph):
        found = _inferred(found)
    infos = (*found.graph.value_info, *found.graph.output, *found.graph.input)
    values = [onnx_ir.serde.deserialize_value_info_proto(info, None) for info in infos if not has_map(info.type)]
    return {value.name or "": Inferred(value.type, value.shape) for value in values}


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return inferred(model)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return model


def _skeleton(model: onnx_ir.Model) -> onnx.ModelProto:
    """Return the model with large initializers as inputs, so that it stays small whatever the weights."""
    calls = call_tree(model)
    # inference follows every single call
    is_deep = calls.depth > DEEPEST or calls.node_count > MOST_NODES
    large = [name for name, value in model.graph.initializers.items() if _is_large(value)]
    if not is_deep and not large:
        return onnx_ir.to_proto(model)
    copy = model.clone()
    if is_deep:
        copy.functions.clear()
    for name in large:
        _become_input(copy.graph, copy.graph.initializers[name])
    return onnx_ir.to_proto(copy)


def _is_large(value: onnx_ir.Value) -> bool:
    return value.const_value is not None and value.const_value.nbytes >= LARGE


def _become_input(graph: onnx_ir.Graph, value: onnx_ir.Value) -> None:
    """Let an initializer be an input of the graph, with the type and the shape that it has."""
    tensor = value.const_value
    if tensor is None:
        return
    sizes = tensor.shape.numpy()
    # inference would keep a symbol of a hundred bytes for each integer of a long list
    is_long = len(sizes) == 1 and sizes[0] > LONGEST and tensor.dtype.is_integer()
    value.dtype, value.shape = tensor.dtype, onnx_ir.Shape([None] if is_long else sizes)
    del graph.initializers[value.name or ""]
    value.const_value = None
    if not value.is_graph_input():
        graph.inputs.append(value)
