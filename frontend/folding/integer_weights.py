"""Weights of integers that are put together from few entries stay sparse: what makes bytes of them is not run.

```
q = Cast<INT8>(w)                                             y = MatMulInteger(x, q, zero)
q = Reshape(Transpose(Cast<UINT8>(Sub(w, least))), shape)     y = ConvInteger(x, q, zero, -least)
q = Cast<INT8>(w)                                             y = Gemm(x, DequantizeLinear(q, scale, 0), b)
```

The weight of each is the matrix w [inputs, outputs], of floats that are integers, and so are networks of ours written.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from .known_constants import constant_array

PLACES: Final = {"ConvInteger": (1, 3), "DequantizeLinear": (0, 2), "MatMulInteger": (1, 3)}
"""Operators that read a weight of bytes, and which of their inputs are the weight and its zero."""

BYTES: Final = {onnx_ir.DataType.INT8: (-128, 127), onnx_ir.DataType.UINT8: (0, 255)}


class IntegerWeightNodes(NamedTuple):
    """A matrix that is the weight of a layer, and the nodes that make bytes of it."""

    source: onnx_ir.Value
    nodes: tuple[onnx_ir.Node, ...]
    zero: NDArray[np.int64]
    """Differences of the bytes from the entries, one or one an output."""
    bounds: tuple[int, int]
    """The least and the greatest byte."""
    kernel_size: tuple[int, ...]
    """Sizes of the window of a convolution; empty for a layer."""


def integer_weight_nodes(reader: onnx_ir.Node, ir_version: int) -> IntegerWeightNodes | None:
    """Return what makes bytes of the weight that an operator of `PLACES` reads; None where it is something else."""
    if reader.op_type not in PLACES or reader.domain != "" or not _is_layer(reader):
        return None
    value, zero = ([*reader.inputs, *[None] * 3][place] for place in PLACES[reader.op_type])
    nodes: list[onnx_ir.Node] = []
    kernel_size: tuple[int, ...] = ()
    reshape = None if reader.op_type == "MatMulInteger" else _only_reader(value, "Reshape")
    if reshape is not None:
        target, transpose = _array(reshape.inputs[1], ir_version), _only_reader(reshape.inputs[0], "Transpose")
        if transpose is None or target is None:
            return None
        value, kernel_size = transpose.inputs[0], tuple(int(size) for size in target[2:])
        nodes += [reshape, transpose]
    if (reader.op_type == "ConvInteger") > bool(kernel_size):
        return None
    cast = _only_reader(value, "Cast")
    bounds = None if cast is None else BYTES.get(onnx_ir.DataType(cast.attributes["to"].as_int()))
    if cast is None or bounds is None or cast.inputs[0] is None:
        return None
    source, offset = cast.inputs[0], np.zeros(1, np.int64)
    nodes.append(cast)
    subtraction = _only_reader(source, "Sub")
    least = None if subtraction is None else _array(subtraction.inputs[1], ir_version)
    if subtraction is not None and least is not None and subtraction.inputs[0] is not None:
        source, offset = subtraction.inputs[0], -least.reshape(-1).astype(np.int64)
        nodes.append(subtraction)
    taken = np.zeros(1, np.int64) if zero is None else _array(zero, ir_version)
    if taken is None or (offset.size != taken.size and 1 not in (offset.size, taken.size)):
        return None
    if np.any(offset != taken.reshape(-1).astype(np.int64)):
        return None
    return IntegerWeightNodes(source, tuple(nodes), offset, bounds, kernel_size)


def nodes_that_make_bytes(
    graph: Iterable[onnx_ir.Node], sparse: Iterable[onnx_ir.Value], ir_version: int
) -> set[onnx_ir.Node]:
    """Return the nodes that make bytes of sparse matrices for layers of integers."""
    known, found = set(sparse), set[onnx_ir.Node]()
    for node in graph:
        weight = integer_weight_nodes(node, ir_version)
        if weight is not None and weight.source in known:
            found.update(weight.nodes)
    return found


def _is_layer(reader: onnx_ir.Node) -> bool:
    """Return whether a weight is that of layers of integers, or of convolutions whose channels are in one group."""
    layers = [use.node for use in reader.outputs[0].uses()] if reader.op_type == "DequantizeLinear" else [reader]
    groups = (node.attributes.get("group") for node in layers)
    if any(group is not None and group.as_int() != 1 for group in groups):
        return False
    return layers == [reader] or all(_reads_codes(layer) for layer in layers)


def _reads_codes(layer: onnx_ir.Node) -> bool:
    x = layer.inputs[0] if layer.op_type in ("Conv", "Gemm", "MatMul") else None
    source = None if x is None else x.producer()
    return source is not None and source.op_type == "DequantizeLinear"


def _only_reader(value: onnx_ir.Value | None, operator: str) -> onnx_ir.Node | None:
    """Return the node of an operator that yields a value which one node reads alone."""
    node = None if value is None or value.is_graph_output() or len(value.uses()) != 1 else value.producer()
    return node if node is not None and node.op_type == operator and node.domain == "" else None


def _array(value: onnx_ir.Value | None, ir_version: int) -> NDArray[np.generic] | None:
    return None if value is None else constant_array(value, ir_version)
