"""Limits of the integers that ONNX's inference may follow: it makes every list that a graph makes, however long."""

from math import prod
from typing import Final, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

LONGEST: Final = 1 << 16
"""A longer list of integers holds no shape."""


class _Bound(NamedTuple):
    """Bound of a list of integers: its length, and its largest entry."""

    length: int
    largest: int


def may_follow_values(graph: onnx.GraphProto) -> bool:
    """Return whether no list that a graph computes from constants and shapes is longer than `LONGEST`."""
    sizes = [dim.dim_value for value in (*graph.input, *graph.value_info) for dim in value.type.tensor_type.shape.dim]
    sizes += [size for tensor in graph.initializer for size in tensor.dims]
    unknown = _Bound(64, max(sizes, default=1))
    known = {tensor.name: _bound_of(tensor, unknown) for tensor in graph.initializer}
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


def _bound_of(tensor: TensorProto, unknown: _Bound) -> _Bound:
    count = prod(tensor.dims)
    is_list = tensor.data_type in (TensorProto.INT64, TensorProto.INT32) and 0 < count <= LONGEST
    if not is_list or tensor.data_location == TensorProto.EXTERNAL:
        return _Bound(1, unknown.largest)
    return _Bound(count, int(np.abs(numpy_helper.to_array(tensor).astype(np.float64)).max()))
