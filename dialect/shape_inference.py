"""The symbolic shape of every value: what the arguments of a function and the axis maps of its ops say of sizes."""

from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from .ops.axis_maps import AxisMap, axis_map_of
from .ops.foreign import INTEGERS, ForeignOp
from .ops.graphs import EdgeListOp
from .ops.image_network import ImageNetworkOp
from .ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, fewest_windows, is_open
from .ops.movement import INFERRED, ReshapeOp, TargetShapeAttr
from .ops.sparse_network import SparseNetworkOp
from .ops.tile import TileOp
from .provenance import texts_of
from .symbolic_sizes import DIMS, SUM, WINDOWS, Size, SymbolicShape, broadcast, product, sum_of, windows_of
from .tensors import DYNAMIC, shape_of


def argument_shapes(func: FuncOp) -> dict[SSAValue, SymbolicShape]:
    """Return the shapes of a function's arguments, floats and integers; sizes without a name are called after these."""
    shapes: dict[SSAValue, SymbolicShape] = {}
    for index, argument in enumerate(func.args):
        attributes = func.arg_attrs.data[index] if func.arg_attrs is not None else DictionaryAttr({})
        shape = _described(argument, texts_of(attributes.data.get(DIMS)), f"%{index}")
        if shape is not None:
            shapes[argument] = shape
    return shapes


def _described(value: SSAValue, names: Sequence[str], own: str) -> SymbolicShape | None:
    """Return the sizes of a value by their names; `own` begins those of others. None where the rank is unknown."""
    if isinstance(value.type, TensorType):
        sizes: Sequence[int] = shape_of(value)
    elif value.type in INTEGERS and names:
        sizes = [int(name) if name.isdecimal() else DYNAMIC for name in names]
    else:
        return None
    return tuple(
        Size.symbol((names[axis] if axis < len(names) else "") or f"{own}.{axis}")
        if size == DYNAMIC
        else Size.known(size)
        for axis, size in enumerate(sizes)
    )


def symbolic_shapes(func: FuncOp) -> dict[SSAValue, SymbolicShape]:
    """Return the symbolic shape of every f32 tensor in the body of `func`; insides of tiles are left out.

    Raises:
        VerifyException: a shape does not follow from those of the inputs.
    """
    shapes = argument_shapes(func)
    for op in func.body.block.ops:
        for result, shape in zip(op.results, result_shapes(op, shapes), strict=False):
            shapes[result] = shape
    return shapes


def result_shapes(op: Operation, shapes: Mapping[SSAValue, SymbolicShape]) -> list[SymbolicShape]:
    """Return the shapes of an op's results from those of its operands; none of a node of ONNX.

    Raises:
        VerifyException: a shape does not follow from those of operands.
    """
    match op:
        case ReshapeOp():
            return [reshaped(op.target, shapes[op.x])]
        case TileOp():
            return _tile_result_shapes(op, shapes)
        case SparseNetworkOp() | ImageNetworkOp():
            return _body_result_shapes(op, shapes)
        case Conv2dOp() | Depthwise2dOp() | Pool2dOp() if is_open(op.x):
            images, _, *rows, length = shapes[op.x]
            results = windows_of(length, op.window.added_to_length, op.window.strides[1], fewest_windows(op))
            return [(images, Size.known(shape_of(op.result)[1]), *rows, results)]
        case ForeignOp():
            return []
        case EdgeListOp():
            # numbers of a model's own input have its size
            is_input = isinstance(op.from_nodes, BlockArgument) and op.from_nodes in shapes
            return [(product(shapes[op.from_nodes]),)] * 3 if is_input else op.shapes
        case _:
            axis_map = axis_map_of(op)
            if axis_map is None:
                return [tuple(Size.known(size) for size in shape_of(result)) for result in op.results]
            return _mapped_result_shapes(op, axis_map, shapes)


def _mapped_result_shapes(
    op: Operation, axis_map: AxisMap, shapes: Mapping[SSAValue, SymbolicShape]
) -> list[SymbolicShape]:
    """Return shapes whose axes have the sizes of those of the same name; new ones have a size that the type knows."""
    sizes: dict[str, Size] = {}
    for operand, axes in zip(op.operands, axis_map.operands, strict=True):
        for axis, size in zip(axes, shapes[operand] if axes else (), strict=True):
            (sizes[axis],) = broadcast((sizes[axis],), (size,)) if axis in sizes else (size,)
    if axis_map.join is not None and axis_map.join.parts[0] in sizes:
        sizes[axis_map.join.whole] = sum_of([sizes[part] for part in axis_map.join.parts])
    return [
        tuple(
            sizes[axis] if axis in sizes else Size.known(size)
            for axis, size in zip(axes, shape_of(result), strict=True)
        )
        for result, axes in zip(op.results, axis_map.results, strict=True)
    ]


def reshaped(target: TargetShapeAttr, shape: SymbolicShape) -> SymbolicShape:
    """Return the shape that a reshape to `target` makes of `shape`."""
    sizes = [
        Size.known(entry) if entry >= 0 else shape[-2 - entry] if entry < INFERRED else None for entry in target.entries
    ]
    known = product([size for size in sizes if size is not None])
    if known == Size.known(0):
        return tuple(Size.known(0) if size is None else size for size in sizes)
    return tuple(product(shape) / known if size is None else size for size in sizes)


def _tile_result_shapes(op: TileOp, shapes: Mapping[SSAValue, SymbolicShape]) -> list[SymbolicShape]:
    """Return the shapes of a tile's results: the leading axes are those of the operand that `pebble.rows_of` names."""
    sources = op.rows_of.get_values()
    return [
        (*shapes[op.inputs[source]][:-1], *(Size.known(size) for size in shape_of(result)[-1:]))
        for source, result in zip(sources, op.outputs, strict=True)
    ]


def _body_result_shapes(
    op: SparseNetworkOp | ImageNetworkOp, shapes: Mapping[SSAValue, SymbolicShape]
) -> list[SymbolicShape]:
    inner = body_shapes(op, shapes)
    return [inner[value] for value in op.yielded]


def body_shapes(
    op: SparseNetworkOp | ImageNetworkOp, shapes: Mapping[SSAValue, SymbolicShape]
) -> dict[SSAValue, SymbolicShape]:
    """Return the shapes of all values of a network, and those of what it reads.

    Raises:
        VerifyException: a shape does not follow from those of operands.
    """
    inner = dict(shapes)
    inner.update((inside, shapes[outside]) for inside, outside in zip(op.body.block.args, op.inputs, strict=True))
    for each in op.body.block.ops:
        inner.update(zip(each.results, result_shapes(each, inner), strict=True))
    return inner


def described_shapes(op: ForeignOp) -> list[SymbolicShape | None]:
    """Return the sizes of what an ONNX node yields, by the names that it carries; None where the rank is unknown.

    A size without a name is different from all others.
    """
    described = op.attributes.get(DIMS)
    words = (
        [texts_of(entry) for entry in cast("ArrayAttr[Attribute]", described)]
        if isinstance(described, ArrayAttr)
        else []
    )
    return [
        _described(result, words[index] if index < len(words) else (), f"%{op.position.value.data}.{index}")
        for index, result in enumerate(op.outputs)
    ]


def described_by(shapes: Sequence[SymbolicShape | None]) -> Attribute:
    """Return the attribute from which `described_shapes` reads the names of sizes."""
    return ArrayAttr([ArrayAttr([StringAttr(_name_of(size)) for size in shape or ()]) for shape in shapes])


def _name_of(size: Size) -> str:
    """Return the name of a size that is one symbol with a name, else nothing."""
    if size.coefficient != 1 or len(size.powers) != 1:
        return ""
    name, power = size.powers[0]
    return name if power == 1 and not name.startswith(("?", SUM, WINDOWS)) else ""
