"""Limits of the integers that ONNX's inference may follow: it makes every list that a graph makes, however long."""

from math import prod
from typing import Final, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

LONGEST: Final = 1 << 16
"""A longer list of integers holds no shape."""

LONGEST_BIAS: Final = 1 << 22
"""Entries of a list of other numbers: inference takes a hundred bytes for each while it looks at it."""

INTEGERS: Final = (TensorProto.INT64, TensorProto.INT32)
"""Types of lists that may hold a shape."""


class _Bound(NamedTuple):
    """Bound of a list of integers: its length, and its largest entry."""

    length: int
    largest: int


def may_follow_values(graph: onnx.GraphProto) -> bool:
    """Return whether no list that a graph is given, or computes from constants and shapes, is longer than `LONGEST`."""
    stated = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info)}
    sizes = [dim.dim_value for tensor in stated.values() for dim in tensor.shape.dim]
    sizes += [size for tensor in graph.initializer for size in tensor.dims]
    unknown = _Bound(64, max(sizes, default=1))
    # inference makes a symbol for each entry of a list of which it knows the length alone, be it of shapes or not
    lists = {name: tensor for name, tensor in stated.items() if len(tensor.shape.dim) == 1}
    if any(tensor.shape.dim[0].dim_value > _longest(tensor) for tensor in lists.values()):
        return False
    known = {name: _Bound(max(1, tensor.shape.dim[0].dim_value), unknown.largest) for name, tensor in lists.items()}
    known |= {tensor.name: _bound_of(tensor, unknown) for tensor in graph.initializer}
    for node in graph.node:
        read = [known.get(name, unknown) for name in node.input if name] or [unknown]
        length, largest = max(one.length for one in read), max(one.largest for one in read)
        match node.op_type:
            case "Concat":
                length = sum(one.length for one in read)
            case "Range":
                length = 2 * largest
            case "Constant":
                held = [_bound_of(entry.t, unknown) for entry in node.attribute if entry.name == "value"]
                length, largest = held[0] if held else unknown
            case "Mul" | "ReduceProd" | "Size":
                largest = min(prod(max(one.largest, 1) for one in read) ** (2 if node.op_type != "Mul" else 1), 1 << 63)
            case "Add" | "Sub":
                largest = min(sum(one.largest for one in read), 1 << 63)
            case _:
                pass
        if node.op_type in ("Concat", "Range") and length > LONGEST:
            return False
        known |= dict.fromkeys(node.output, _Bound(length, largest))
    return True


def _longest(tensor: onnx.TypeProto.Tensor) -> int:
    return LONGEST if tensor.elem_type in INTEGERS else LONGEST_BIAS


def _bound_of(tensor: TensorProto, unknown: _Bound) -> _Bound:
    count = prod(tensor.dims)
    is_list = tensor.data_type in INTEGERS and 0 < count <= LONGEST
    if not is_list or tensor.data_location == TensorProto.EXTERNAL:
        return _Bound(1, unknown.largest)
    return _Bound(count, int(np.abs(numpy_helper.to_array(tensor).astype(np.float64)).max()))
