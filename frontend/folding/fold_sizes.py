"""Sizes that are the same in every call become constants: what a graph computes of them can be folded then.

before: `s = Shape(x) w = Gather(s, last) h = Div(w, two)` with x [batch, 64]    after: `h = {32}`
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx_ir

from ...dialect.symbolic_sizes import Size, SymbolicShape
from .known_constants import constant_array, initializer_of, is_constant
from .known_sizes import is_known
from .shape_arithmetic import (
    ShapeQuery,
    ShapeValue,
    shape_value_of_constant,
    shape_value_of_node,
)

READING_SIZES: Final = frozenset({"Shape", "Size"})

YIELDING_INT64: Final = frozenset({"Gather", "Shape", "Size", "Slice"})
"""Operators on shapes whose result is worth a constant; what is computed of it folds as all constants do."""


def fold_sizes(model: onnx_ir.Model, shapes: Mapping[str, onnx_ir.Shape]) -> bool:
    """Let constants take the place of sizes that `shapes`, by name, says; return whether there were any."""
    known: dict[onnx_ir.Value, ShapeValue] = {}

    def value_of(value: onnx_ir.Value) -> ShapeValue | None:
        array = constant_array(value, model.ir_version) if is_constant(value, model.ir_version) else None
        return known.get(value) if array is None else shape_value_of_constant(array)

    def sizes_of(value: onnx_ir.Value) -> SymbolicShape | None:
        shape = shapes.get(value.name or "")
        if shape is None:
            return None
        # sizes without a number are only told apart here
        return tuple(
            Size.known(size) if isinstance(size, int) else Size.symbol(f"?{value.name}.{axis}")
            for axis, size in enumerate(shape)
        )

    folded = False
    for node in list(model.graph):
        if node.domain != "" or node.op_type not in YIELDING_INT64:
            continue
        found = shape_value_of_node(ShapeQuery(node, model.opset_imports[""], value_of, sizes_of))
        if found is None:
            continue
        output = node.outputs[0]
        known[output] = found
        if all(map(is_known, found.sizes)) and output.uses() and not output.is_graph_output():
            _replace(model.graph, node, found)
            folded = True
    return folded


def _replace(graph: onnx_ir.Graph, node: onnx_ir.Node, found: ShapeValue) -> None:
    numbers = np.array([int(size.coefficient) for size in found.sizes], np.int64)
    array = numbers.reshape(()) if found.scalar else numbers
    output = node.outputs[0]
    initializer = initializer_of(output.name or "", onnx_ir.tensor(array))
    output.replace_all_uses_with(initializer)
    graph.remove(node, safe=True)
    graph.register_initializer(initializer)
