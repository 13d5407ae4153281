"""Weights of integers that are put together from few entries stay sparse: what makes bytes of them is not run.

```
q = Cast<INT8>(w)                                             y = MatMulInteger(x, q, zero)
q = Reshape(Transpose(Cast<UINT8>(Sub(w, least))), shape)     y = ConvInteger(x, q, zero, -least)
```

The weight of both is the matrix w [inputs, outputs], of floats that are integers, and so are networks of ours written.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from redpebble.frontend.folding.known_constants import constant_array

BYTES: Final = {onnx_ir.DataType.INT8: (-128, 127), onnx_ir.DataType.UINT8: (0, 255)}


class IntegerWeightNodes(NamedTuple):
    """The matrix that a product of integers has for its weight, and the nodes that make bytes of it."""

    source: onnx_ir.Value
    nodes: tuple[onnx_ir.Node, ...]
    zero: NDArray[np.int64]
    """Differences of the bytes from the entries, one or one an output."""
    bounds: tuple[int, int]
    """The least and the greatest byte."""
    kernel_size: tuple[int, ...]
    """Sizes of the window of a convolution; empty for a layer."""


def integer_weight_nodes(product: onnx_ir.Node, ir_version: int) -> IntegerWeightNodes | None:
    """Return what makes bytes of the weight of a MatMulInteger or ConvInteger; None where it is something else."""
    if product.op_type not in ("ConvInteger", "MatMulInteger") or product.domain != "":
        return None
    value, zero = [*product.inputs, *[None] * 3][1:4:2]
    nodes: list[onnx_ir.Node] = []
    kernel_size: tuple[int, ...] = ()
    if product.op_type == "ConvInteger":
        reshape = _only_reader(value, "Reshape")
        target = None if reshape is None else _array(reshape.inputs[1], ir_version)
        transpose = None if reshape is None else _only_reader(reshape.inputs[0], "Transpose")
        group = product.attributes.get("group")
        if reshape is None or transpose is None or target is None or (group is not None and group.as_int() != 1):
            return None
        value, kernel_size = transpose.inputs[0], tuple(int(size) for size in target[2:])
        nodes += [reshape, transpose]
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
    """Return the nodes that make bytes of sparse matrices for products of integers."""
    known, found = set(sparse), set[onnx_ir.Node]()
    for node in graph:
        weight = integer_weight_nodes(node, ir_version)
        if weight is not None and weight.source in known:
            found.update(weight.nodes)
    return found


def _only_reader(value: onnx_ir.Value | None, operator: str) -> onnx_ir.Node | None:
    """Return the node of an operator that yields a value which one node reads alone."""
    node = None if value is None or value.is_graph_output() or len(value.uses()) != 1 else value.producer()
    return node if node is not None and node.op_type == operator and node.domain == "" else None


def _array(value: onnx_ir.Value | None, ir_version: int) -> NDArray[np.generic] | None:
    return None if value is None else constant_array(value, ir_version)
