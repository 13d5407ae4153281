"""Constants and sizes of a model folded in turn: a size that is known makes constants, and they make sizes known.

An If whose condition is known becomes the nodes of its branch.

before: `y = If(false) <then: a, else: b>`    after: `b`, whose results take the place of `y`

Sizes that are the same in every call become constants: what a graph computes of them can be folded then.

before: `s = Shape(x) w = Gather(s, last) h = Div(w, two)` with x [batch, 64]    after: `h = {32}`
"""

from collections.abc import Mapping, Set
from typing import Final

import numpy as np
import onnx_ir

from ..dialect.symbolic_sizes import Size, SymbolicShape
from .folding.fold_weights import fold_constants
from .folding.known_constants import constant_array, initializer_of, is_constant
from .folding.known_sizes import is_known
from .folding.shape_arithmetic import ShapeQuery, ShapeValue, shape_value_of_constant, shape_value_of_node
from .operators.shape_inference import infer_types


def fold_branches(model: onnx_ir.Model) -> bool:
    """Replace, in place, each If of a known condition by its branch; return whether there were any."""
    folded = False
    for node in list(model.graph):
        if (node.domain, node.op_type) != ("", "If") or any(value.is_graph_output() for value in node.outputs):
            continue
        condition = None if node.inputs[0] is None else constant_array(node.inputs[0], model.ir_version)
        if condition is not None and condition.size == 1:
            name = "then_branch" if condition.reshape(-1)[0] else "else_branch"
            folded |= _replace(model.graph, node, node.attributes[name].as_graph())
    return folded


def _replace(graph: onnx_ir.Graph, node: onnx_ir.Node, branch: onnx_ir.Graph) -> bool:
    """Put the nodes of a branch in the place of a node; return False where a result is none of its values."""
    outputs = list(branch.outputs)
    inside = list(branch)
    if branch.initializers or any(value.producer() not in inside for value in outputs):
        return False
    branch.outputs.clear()
    branch.remove(inside)
    for one in inside:
        for value in one.outputs:
            # names of a branch may be those of the other one, or of another If
            value.name = f"{node.name}/{value.name}"
    graph.insert_before(node, inside)
    for old, new in zip(node.outputs, outputs, strict=True):
        _make_limits_scalars(graph, node, old, new)
        old.replace_all_uses_with(new)
    graph.remove(node, safe=True)
    return True


def _make_limits_scalars(graph: onnx_ir.Graph, node: onnx_ir.Node, old: onnx_ir.Value, new: onnx_ir.Value) -> None:
    """Let each Range that reads the value of an If read the one element of what takes its place.

    A Range takes the one element of a vector in a call, where onnxruntime refuses a vector that it knows beforehand.
    """
    limits = [use for use in old.uses() if use.node.op_type == "Range"]
    if not limits:
        return
    scalar = onnx_ir.node("Squeeze", [new], version=node.version)
    scalar.outputs[0].name = f"{new.name}/scalar"
    graph.insert_before(node, [scalar])
    for use in limits:
        use.node.replace_input_with(use.idx, scalar.outputs[0])


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
            _hold(model.graph, node, found)
            folded = True
    return folded


def _hold(graph: onnx_ir.Graph, node: onnx_ir.Node, found: ShapeValue) -> None:
    numbers = np.array([int(size.coefficient) for size in found.sizes], np.int64)
    array = numbers.reshape(()) if found.scalar else numbers
    output = node.outputs[0]
    initializer = initializer_of(output.name or "", onnx_ir.Tensor(array))
    output.replace_all_uses_with(initializer)
    graph.remove(node, safe=True)
    graph.register_initializer(initializer)


MOST_ROUNDS: Final = 16
"""Times that sizes are inferred for others to become known: each takes a walk through the model."""


def fold_model(model: onnx_ir.Model, *, keep_foreign: bool, kept: Set[str] = frozenset()) -> frozenset[str]:
    """Fold constants and known sizes, in place, until nothing changes; return the names of constants that grew.

    `keep_foreign` and `kept` are those of `fold_constants`.
    """
    grown = fold_constants(model, keep_foreign=keep_foreign, kept=kept)
    for _ in range(MOST_ROUNDS):
        reads_sizes = any(node.op_type in READING_SIZES for node in model.graph)
        branched = fold_branches(model)
        if not (reads_sizes and fold_sizes(model, inferred_shapes(model))) and not branched:
            break
        grown |= fold_constants(model, keep_foreign=keep_foreign, kept=kept)
    return grown


def inferred_shapes(model: onnx_ir.Model) -> Mapping[str, onnx_ir.Shape]:
    """Return the shapes, by name, that ONNX infers whatever the model states of its own results."""
    inferred = infer_types(model, trusted=False)
    return {name: found.shape for name, found in inferred.items() if found.shape is not None}
