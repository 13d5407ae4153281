"""Sizes that operators state of their inputs, which ONNX's inference does not read: a weight knows what it multiplies.

before: `x [batch, ?, ?]   w [768, 64]   y = MatMul(x, w)`    after: `x [batch, ?, 768]`
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import onnx

YIELDING_FLOATS: Final = frozenset({"Normalizer", "Scaler"})
KEEPING_SHAPES: Final = frozenset(("ai.onnx.ml", name) for name in (*YIELDING_FLOATS, "Binarizer", "Imputer"))
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
