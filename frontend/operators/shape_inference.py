"""Types and shapes by ONNX's own inference, and what it says of nodes that contradict themselves.

Sizes that operators state of their inputs, which ONNX's inference does not read: a weight knows what it multiplies.

before: `x [batch, ?, ?]   w [768, 64]   y = MatMul(x, w)`    after: `x [batch, ?, 768]`
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import onnx
import onnx_ir

from ..errors import InvalidModelError
from ..folding.computed_sizes import add_computed_sizes
from ..folding.inferred_values import LONGEST, inferred
from ..reading.function_calls import DEEPEST, MOST_NODES, call_tree
from ..reading.map_types import has_map
from .table import CONVERTERS

YIELDING_FLOATS: Final = frozenset({"Normalizer", "Scaler"})
KEEPING_SHAPES: Final = frozenset(
    {
        *(("ai.onnx.ml", name) for name in (*YIELDING_FLOATS, "Binarizer", "Imputer")),
        *(
            ("com.microsoft", name)
            for name in ("RotaryEmbedding", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
        ),
    }
)
"""Operators whose result has the shape of their input, which ONNX's inference does not say."""


class Stated(NamedTuple):
    """An axis of a node's input, and its size."""

    operand: int
    axis: int
    size: int


class _Rule(Protocol):
    """Sizes an operator states of its inputs from their shapes: None for an unknown rank, 0 for an unknown size."""

    def __call__(self, node: onnx.NodeProto, shapes: list[list[int] | None]) -> Iterator[Stated]:
        """Yield axes that have to have a size."""
        ...


def add_stated_sizes(graph: onnx.GraphProto) -> bool:
    """Write what operators state of their inputs into the graph's types, in place; return whether any of it is new."""
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    constants = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    added = False
    for node in graph.node:
        added |= _keep_shape(graph, node, infos)
        rule = RULES.get(node.op_type) if node.domain == "" else None
        if rule is None:
            continue
        shapes = [constants.get(name) or _sizes(infos.get(name)) for name in node.input]
        for operand, axis, size in rule(node, shapes):
            shape = shapes[operand]
            if shape is not None and size and not shape[axis]:
                dims = infos[node.input[operand]].type.tensor_type.shape.dim
                dims[axis].dim_value = size
                added = True
    return added


def _sizes(info: onnx.ValueInfoProto | None) -> list[int] | None:
    if info is None or not info.type.tensor_type.HasField("shape"):
        return None
    return [dim.dim_value for dim in info.type.tensor_type.shape.dim]


def _keep_shape(graph: onnx.GraphProto, node: onnx.NodeProto, infos: dict[str, onnx.ValueInfoProto]) -> bool:
    """State the shape of what has its input's, where ONNX's inference does not know; return whether it is new."""
    if (node.domain, node.op_type) not in KEEPING_SHAPES or not (node.input and node.output):
        return False
    source, known = infos.get(node.input[0]), infos.get(node.output[0])
    if _sizes(known) is not None or source is None or _sizes(source) is None:
        return False
    info = known if known is not None else graph.value_info.add(name=node.output[0])
    info.type.CopyFrom(source.type)
    if node.op_type in YIELDING_FLOATS:
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    infos[info.name] = info
    return True


def _integer(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)


def _matmul(node: onnx.NodeProto, shapes: list[list[int] | None]) -> Iterator[Stated]:
    del node
    left, right = shapes[:2]
    if left and right:
        yield from _inner(left, -1, right, -2 if len(right) > 1 else -1)


def _gemm(node: onnx.NodeProto, shapes: list[list[int] | None]) -> Iterator[Stated]:
    left, right = shapes[:2]
    if left and right and len(left) == len(right) == 2:
        yield from _inner(left, 0 if _integer(node, "transA", 0) else 1, right, 1 if _integer(node, "transB", 0) else 0)


def _inner(left: list[int], left_axis: int, right: list[int], right_axis: int) -> Iterator[Stated]:
    """Yield the axis over which a product sums, as each side states it of the other."""
    yield Stated(0, left_axis, right[right_axis])
    yield Stated(1, right_axis, left[left_axis])


def _layer_norm(node: onnx.NodeProto, shapes: list[list[int] | None]) -> Iterator[Stated]:
    values, scale = shapes[:2]
    if not values or not scale:
        return
    axis = _integer(node, "axis", -1)
    normalized = len(values) - axis if axis >= 0 else -axis
    # a scale of size 1 is repeated
    yield from (
        Stated(0, -from_end, scale[-from_end]) for from_end in range(1, normalized + 1) if _says(scale, from_end)
    )


def _says(scale: list[int], from_end: int) -> bool:
    return from_end <= len(scale) and scale[-from_end] > 1


def _batch_norm(node: onnx.NodeProto, shapes: list[list[int] | None]) -> Iterator[Stated]:
    del node
    values, scale = shapes[:2]
    if values and scale and len(values) > 1:
        yield Stated(0, 1, scale[0])


RULES: Final[Mapping[str, _Rule]] = MappingProxyType(
    {
        "BatchNormalization": _batch_norm,
        "Gemm": _gemm,
        "LayerNormalization": _layer_norm,
        "MatMul": _matmul,
        "RMSNormalization": _layer_norm,
        "SimplifiedLayerNormalization": _layer_norm,
    }
)

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
    while add_stated_sizes(found.graph) or add_computed_sizes(found):
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
