"""ONNX's inference with limits of the integers that it follows: it makes every list that a graph makes, however long.

Inference makes an entry of a hundred bytes for each number of a list that certain operators read, be it one of shapes
or not, as soon as it knows the length.
"""

from collections.abc import Mapping, Set
from functools import cache
from math import prod
from typing import Final, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

LONGEST: Final = 1 << 16
"""A longer list of integers holds no shape."""

MOST_ENTRIES: Final = 1 << 23
"""Entries of all lists that inference may make: a gigabyte."""

INTEGERS: Final = (TensorProto.INT64, TensorProto.INT32)
"""Types of lists that may hold a shape."""

MADE_TO_MEASURE: Final[Mapping[str, int]] = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Tile": 1}
"""Operators whose result is as long as the numbers say that they read -> the input that holds these."""


MAKING_LISTS: Final = frozenset({"ArgMax", "ArgMin", "Einsum", "Gather", "GatherND", "Reshape", "Squeeze"})
"""Operators, beside those that reduce, that may make a list of what has more axes."""


REARRANGING: Final = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators whose result has the entries that they read, or as many."""

MOST_VALUES: Final = 1 << 63
"""Bound where nothing is known."""


class _Bound(NamedTuple):
    """Bound of a tensor: its size along an axis, and its largest entry where these are integers."""

    length: int
    largest: int
    is_list: bool = True
    """Whether there may be one axis alone."""
    values: int = 1
    """Bound of its entries, along the axes whose sizes may become known: those that inputs name never do."""


def inferred(model: onnx.ModelProto, *, checked: bool = False) -> onnx.ModelProto:
    """Return a model with the types that ONNX infers, of the integers in its lists as well where these stay short.

    Raises:
        InferenceError: it is `checked`, and a node contradicts itself.
    """

    def infer(*, follow: bool) -> onnx.ModelProto:
        return onnx.shape_inference.infer_shapes(model, check_type=checked, strict_mode=checked, data_prop=follow)

    plain = infer(follow=False)
    return infer(follow=True) if may_follow_values(plain.graph) else plain


def may_follow_values(graph: onnx.GraphProto) -> bool:
    """Return whether the lists that inference makes when it follows integers have `MOST_ENTRIES` at most.

    The graph has the types that are inferred otherwise: what they leave open is bounded by the sizes that there are.
    """
    stated = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info, *graph.output)}
    sizes = [dim.dim_value for tensor in stated.values() for dim in tensor.shape.dim]
    sizes += [size for tensor in graph.initializer for size in tensor.dims]
    unknown = _Bound(64, max(sizes, default=1), values=MOST_VALUES)
    named = frozenset(dim.dim_param for value in graph.input for dim in stated[value.name].shape.dim) - {""}
    known = {value.name: _stated(stated[value.name], unknown, named) for value in graph.input}
    known |= {tensor.name: _bound_of(tensor, unknown) for tensor in graph.initializer}
    left = MOST_ENTRIES
    for node in graph.node:
        read = [known.get(name, unknown) for name in node.input if name] or [unknown]
        found = _result(node, read, unknown)
        for name in node.output:
            known[name] = _stated(stated[name], found, named) if name in stated else found
        if node.op_type in _following():
            left -= sum(one.length for one in (*read, known[node.output[0]]) if one.is_list)
        if left < 0:
            return False
    return True


def _result(node: onnx.NodeProto, read: list[_Bound], unknown: _Bound) -> _Bound:
    """Return the bound of what a node yields from what it reads."""
    length, largest = max(one.length for one in read), max(one.largest for one in read)
    is_list = all(one.is_list for one in read) or node.op_type in MAKING_LISTS or node.op_type.startswith("Reduce")
    match node.op_type:
        case "Concat":
            length = sum(one.length for one in read)
        case "Range":
            length = 2 * largest
        case "Constant":
            return _bound_of_constant(node, unknown)
        case "Mul" | "ReduceProd" | "Size":
            largest = min(prod(max(one.largest, 1) for one in read) ** (2 if node.op_type != "Mul" else 1), MOST_VALUES)
        case "Add" | "Sub":
            largest = min(sum(one.largest for one in read), MOST_VALUES)
        case "Shape":
            length = unknown.length
        case _ if node.op_type in MADE_TO_MEASURE and MADE_TO_MEASURE[node.op_type] < len(read):
            target = read[MADE_TO_MEASURE[node.op_type]]
            merged = read[0].values if node.op_type == "Reshape" else 1
            length, is_list = max(length, target.largest, merged), target.length == 1
        case _:
            pass
    return _Bound(length, largest, is_list, _values(node, read))


def _values(node: onnx.NodeProto, read: list[_Bound]) -> int:
    """Return the bound of the entries of what a node yields."""
    if node.op_type in REARRANGING:
        return read[0].values
    if node.op_type in MADE_TO_MEASURE or node.op_type == "Range":
        return MOST_VALUES
    counts = [one.values for one in read]
    return min(max(sum(counts), prod(counts)), MOST_VALUES)


def _bound_of_constant(node: onnx.NodeProto, unknown: _Bound) -> _Bound:
    for entry in node.attribute:
        match entry.name:
            case "value":
                return _bound_of(entry.t, unknown)
            case "value_int":
                return _Bound(1, abs(entry.i))
            case "value_ints":
                return _Bound(len(entry.ints), max(map(abs, entry.ints), default=0), values=len(entry.ints))
            case _:
                continue
    return unknown


@cache
def _following() -> frozenset[str]:
    """Return the operators through which inference follows integers."""
    return frozenset(
        schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.has_data_propagation_function
    )


def _stated(tensor: onnx.TypeProto.Tensor, found: _Bound, named: Set[str]) -> _Bound:
    """Return the bound of a tensor whose type says of its sizes what it knows."""
    if not tensor.HasField("shape"):
        return found
    dims = tensor.shape.dim
    sizes = [dim.dim_value if dim.HasField("dim_value") else found.length for dim in dims]
    count = prod(1 if dim.dim_param in named else size for dim, size in zip(dims, sizes, strict=True))
    return _Bound(max(sizes, default=1), found.largest, len(dims) == 1, min(count, found.values))


def _bound_of(tensor: TensorProto, unknown: _Bound) -> _Bound:
    count = prod(tensor.dims)
    length = max(tensor.dims, default=1)
    is_list = tensor.data_type in INTEGERS and 0 < count <= LONGEST
    if not is_list or tensor.data_location == TensorProto.EXTERNAL:
        return _Bound(length, unknown.largest, len(tensor.dims) == 1, count)
    largest = int(np.abs(numpy_helper.to_array(tensor).astype(np.float64)).max())
    return _Bound(length, largest, len(tensor.dims) == 1, count)
