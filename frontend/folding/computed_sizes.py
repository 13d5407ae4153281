"""Sizes of what a graph makes in a shape that it computes, which ONNX's inference follows in short graphs alone.

before: `s = Concat(Shape(x)[0:1], {512}, {256})  y = Reshape(z, s)` with x [n, 2048]    after: `y [?, 512, 256]`

The batch, as every size that calls choose, is a name here: what is computed of it is computed with names.
"""

from collections.abc import Iterator, Sequence, Set
from typing import Final

import onnx
import onnx_ir

from ...dialect.symbolic_sizes import Size, SymbolicShape
from ..reading.axis_names import NO_NAMES
from ..reading.map_types import without_map_types
from .known_constants import constant_array, is_constant
from .known_sizes import is_known
from .shape_arithmetic import ShapeQuery, ShapeValue, shape_value_of_constant, shape_value_of_node

MADE_IN_A_SHAPE: Final = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1}
"""Operator -> the input with the shape of its result."""

UNKNOWN: Final = "?"
"""The beginning of a name for a size that nothing is known of, so that it is told apart from others."""


def add_computed_sizes(model: onnx.ModelProto) -> bool:
    """Write sizes that the graph computes into its types, in place; return whether any of it is new."""
    infos = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
    made = [infos.get(next(iter(node.output), "")) for node in model.graph.node if node.op_type in MADE_IN_A_SHAPE]
    chosen = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim} - NO_NAMES
    # most graphs end here: what follows reads the model once more
    if all(info is not None and _has_sizes(info.type.tensor_type, chosen) for info in made):
        return False
    added = False
    for value, sizes in _computed(onnx_ir.from_proto(without_map_types(model)[0])):
        name = value.name or ""
        if name not in infos:
            if value.dtype is None:
                continue
            infos[name] = model.graph.value_info.add(name=name)
            infos[name].type.tensor_type.elem_type = value.dtype.value
        added |= _write(infos[name].type.tensor_type, sizes)
    return added


def _has_sizes(tensor: onnx.TypeProto.Tensor, chosen: Set[str]) -> bool:
    """Return whether a type has a number, or the name of a size that calls choose, for each axis."""
    dims = tensor.shape.dim
    return tensor.HasField("shape") and all(dim.HasField("dim_value") or dim.dim_param in chosen for dim in dims)


def _write(tensor: onnx.TypeProto.Tensor, sizes: Sequence[Size | None]) -> bool:
    """Write the sizes that are known and that the type does not have; return whether there are any."""
    added = not tensor.HasField("shape")
    if added:
        tensor.shape.SetInParent()
        for _ in sizes:
            tensor.shape.dim.add()
    elif len(tensor.shape.dim) != len(sizes):
        return False  # the model contradicts itself, which is said elsewhere
    for dim, size in zip(tensor.shape.dim, sizes, strict=True):
        if size is not None and is_known(size) and size.coefficient >= 0 and not dim.HasField("dim_value"):
            dim.dim_value = int(size.coefficient)
            added = True
    return added


def _computed(model: onnx_ir.Model) -> Iterator[tuple[onnx_ir.Value, Sequence[Size | None]]]:
    """Yield values of computed shapes, and their sizes; None where nothing is known."""
    version, known = model.ir_version, dict[onnx_ir.Value, ShapeValue]()

    def value_of(value: onnx_ir.Value) -> ShapeValue | None:
        array = constant_array(value, version) if is_constant(value, version) else None
        return known.get(value) if array is None else shape_value_of_constant(array)

    for node in model.graph:
        if node.domain != "":
            continue
        found = shape_value_of_node(ShapeQuery(node, model.opset_imports[""], value_of, sizes_of))
        if found is not None:
            known[node.outputs[0]] = found
        if node.op_type not in MADE_IN_A_SHAPE:
            continue
        shape = node.inputs[MADE_IN_A_SHAPE[node.op_type]] if len(node.inputs) > MADE_IN_A_SHAPE[node.op_type] else None
        target = None if shape is None else value_of(shape)
        sizes = None if target is None or target.scalar else _sizes_in(node, target.sizes)
        if sizes is not None:
            yield node.outputs[0], sizes


def _sizes_in(node: onnx_ir.Node, target: SymbolicShape) -> Sequence[Size | None] | None:
    """Return the sizes of what a node makes in a shape; None where not even their number is known."""
    match node.op_type:
        case "Expand":
            source = None if node.inputs[0] is None else sizes_of(node.inputs[0])
            return None if source is None else _broadcast(source, target)
        case "Reshape":
            # 0 may be the size of the source, and -1 is what is left
            return [size if size.coefficient > 0 else None for size in target]
        case _:
            return target


def _broadcast(source: SymbolicShape, target: SymbolicShape) -> list[Size | None]:
    rank, one = max(len(source), len(target)), Size.known(1)
    pairs = zip(*((one,) * (rank - len(sizes)) + sizes for sizes in (source, target)), strict=True)
    return [_one_of(*pair) for pair in pairs]


def _one_of(first: Size, second: Size) -> Size | None:
    """Return the size of two axes that are broadcast: a number other than 1 decides."""
    one = Size.known(1)
    if first in (one, second):
        return second
    if second == one:
        return first
    return next((size for size in (first, second) if is_known(size)), None)


def sizes_of(value: onnx_ir.Value) -> SymbolicShape | None:
    """Return the sizes that the type of a value states, with names of their own for those that are not known."""
    if value.shape is None:
        return None
    words = (
        size if isinstance(size, int) else size.value or f"{UNKNOWN}{value.name}.{axis}"
        for axis, size in enumerate(value.shape)
    )
    return tuple(Size.known(word) if isinstance(word, int) else Size.symbol(word) for word in words)
