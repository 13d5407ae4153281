"""Sizes that only a call knows: every dimension of every value as a product of the inputs' symbolic sizes.

A size is a monomial such as `4*batch*sequence`; reshapes multiply and divide sizes, nothing that is covered adds them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from redpebble.dialect.ops.elementwise import BinaryOp
from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.ops.layers import LinearOp, ReduceMeanOp
from redpebble.dialect.ops.movement import INFERRED, ConcatOp, ReshapeOp, SplitOp, TargetShapeAttr, TransposeOp
from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.ops.sparse_network import SparseNetworkOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.tensors import DYNAMIC, shape_of

NAME = "pebble.name"
DIMS = "pebble.dims"


@dataclass(frozen=True)
class Size:
    """`coefficient` times the symbols to their powers; symbols are sorted and their powers are not zero."""

    coefficient: Fraction
    powers: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def known(value: int) -> "Size":
        """Return the size that is `value` in every call."""
        return Size(Fraction(value))

    @staticmethod
    def symbol(name: str) -> "Size":
        """Return the size that the call knows as `name`."""
        return Size(Fraction(1), ((name, 1),))

    @property
    def constant(self) -> int | None:
        """The size where it is the same in every call, else None."""
        return None if self.powers else int(self.coefficient)

    def __mul__(self, other: "Size") -> "Size":
        return self._combined(other, 1)

    def __truediv__(self, other: "Size") -> "Size":
        return self._combined(other, -1)

    def _combined(self, other: "Size", sign: int) -> "Size":
        powers = dict(self.powers)
        for name, power in other.powers:
            powers[name] = powers.get(name, 0) + sign * power
        coefficient = self.coefficient * other.coefficient**sign
        return Size(coefficient, tuple(sorted((name, power) for name, power in powers.items() if power)))

    def evaluate(self, symbols: Mapping[str, int]) -> int:
        """Return the size in a call.

        Raises:
            ValueError: the result is no whole number.
        """
        if any(symbols[name] == 0 and power < 0 for name, power in self.powers):
            return 0
        value = self.coefficient * prod(Fraction(symbols[name]) ** power for name, power in self.powers)
        if value.denominator != 1:
            raise ValueError(f"size {self} is {value} here, expected a whole number")
        return int(value)

    def __str__(self) -> str:
        words = [f"{name}^{power}" if power != 1 else name for name, power in self.powers]
        return "*".join([str(self.coefficient), *words] if self.coefficient != 1 or not words else words)


SymbolicShape = tuple[Size, ...]


def bind_symbols(expected: Mapping[str, SymbolicShape], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """Return the value of every symbol, given the expected shapes of inputs by name and those that a call has.

    Raises:
        ValueError: a shape does not fit; the message names the input, the size and what is expected.
    """
    symbols: dict[str, int] = {}
    for (name, sizes), shape in zip(expected.items(), shapes, strict=True):
        if len(shape) != len(sizes):
            text = ", ".join(map(str, sizes))
            raise ValueError(f"input {name!r} has shape {shape}, expected [{text}]")
        for axis, (size, value) in enumerate(zip(sizes, shape, strict=True)):
            known = size.constant if size.constant is not None else symbols.setdefault(str(size), value)
            if known != value:
                raise ValueError(f"input {name!r} has size {value} along axis {axis}, expected {known}")
    return symbols


def product(sizes: Sequence[Size]) -> Size:
    """Return the product of sizes, 1 for none."""
    return prod(sizes, start=Size.known(1))


def argument_shapes(func: FuncOp) -> dict[SSAValue, SymbolicShape]:
    """Return the shapes of a function's tensor arguments; dimensions without a name are called after the argument."""
    shapes: dict[SSAValue, SymbolicShape] = {}
    for index, argument in enumerate(func.args):
        if not isa(argument.type, TensorType[Attribute]):
            continue
        attributes = func.arg_attrs.data[index] if func.arg_attrs is not None else DictionaryAttr({})
        names = _texts(attributes.data.get(DIMS))
        shapes[argument] = tuple(
            Size.symbol((names[axis] if axis < len(names) else "") or f"%{index}.{axis}")
            if size == DYNAMIC
            else Size.known(size)
            for axis, size in enumerate(argument.type.get_shape())
        )
    return shapes


def _texts(attribute: Attribute | None) -> list[str]:
    return [entry.data for entry in attribute] if isa(attribute, ArrayAttr[StringAttr]) else []


def symbolic_shapes(func: FuncOp) -> dict[SSAValue, SymbolicShape]:
    """Return the symbolic shape of every f32 tensor in the body of `func`; insides of tiles are left out.

    Raises:
        VerifyException: a size is no product of the inputs' sizes.
    """
    shapes = argument_shapes(func)
    for op in func.body.block.ops:
        for result, shape in zip(op.results, result_shapes(op, shapes), strict=False):
            shapes[result] = shape
    return shapes


def result_shapes(op: Operation, shapes: Mapping[SSAValue, SymbolicShape]) -> list[SymbolicShape]:
    """Return the shapes of an op's results from those of its operands."""
    match op:
        case LinearOp():
            return [(*shapes[op.x][:-1], Size.known(shape_of(op.weight)[1]))]
        case NetworkOp():
            return [(*shapes[op.inputs[0]][:-1], Size.known(shape_of(output)[-1])) for output in op.outputs]
        case ReduceMeanOp():
            return [(*shapes[op.x][:-1], Size.known(1))]
        case BinaryOp():
            return [broadcast(shapes[op.left], shapes[op.right])]
        case ReshapeOp():
            return [reshaped(op.target, shapes[op.x])]
        case TransposeOp():
            return [tuple(shapes[op.x][axis] for axis in op.order)]
        case ConcatOp():
            return [_joined([shapes[part] for part in op.parts], op.axis.value.data)]
        case SplitOp():
            axis = op.axis.value.data
            whole = shapes[op.x]
            return [(*whole[:axis], Size.known(shape_of(part)[axis]), *whole[axis + 1 :]) for part in op.parts]
        case TileOp():
            return tile_result_shapes(op, shapes)
        case SparseNetworkOp():
            return _body_result_shapes(op, shapes)
        case ForeignOp():
            return []
        case _ if op.operands:
            return [shapes[op.operands[0]]] * len(op.results)
        case _:
            return [tuple(Size.known(size) for size in shape_of(result)) for result in op.results]


def broadcast(left: SymbolicShape, right: SymbolicShape) -> SymbolicShape:
    """Return numpy's broadcast; of two sizes not known to be equal, the one that is a number wins, then the left."""
    rank = max(len(left), len(right))
    one = Size.known(1)
    padded = zip((one,) * (rank - len(left)) + left, (one,) * (rank - len(right)) + right, strict=True)
    return tuple(
        second if first == one or (first.constant is None and second.constant not in (1, None)) else first
        for first, second in padded
    )


def reshaped(target: TargetShapeAttr, shape: SymbolicShape) -> SymbolicShape:
    """Return the shape that a reshape to `target` makes of `shape`."""
    sizes = [
        Size.known(entry) if entry >= 0 else shape[-2 - entry] if entry < INFERRED else None for entry in target.values
    ]
    known = product([size for size in sizes if size is not None])
    if known == Size.known(0):
        return tuple(Size.known(0) if size is None else size for size in sizes)
    return tuple(product(shape) / known if size is None else size for size in sizes)


def _joined(shapes: Sequence[SymbolicShape], axis: int) -> SymbolicShape:
    along = [shape[axis] for shape in shapes]
    if any(size.powers != along[0].powers for size in along):
        raise VerifyException(f"concat of sizes {', '.join(map(str, along))} along axis {axis}: the sum has no name")
    total = Size(sum((size.coefficient for size in along), Fraction(0)), along[0].powers)
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :])


def tile_result_shapes(op: TileOp, shapes: Mapping[SSAValue, SymbolicShape]) -> list[SymbolicShape]:
    """Return the shapes of a tile's results: the leading axes are those of the operand that `pebble.rows_of` names."""
    sources = op.rows_of.get_values()
    return [
        (*shapes[op.inputs[source]][:-1], *(Size.known(size) for size in shape_of(result)[-1:]))
        for source, result in zip(sources, op.outputs, strict=True)
    ]


def _body_result_shapes(op: SparseNetworkOp, shapes: Mapping[SSAValue, SymbolicShape]) -> list[SymbolicShape]:
    inner = dict(shapes)
    inner.update((inside, shapes[outside]) for inside, outside in zip(op.body.block.args, op.inputs, strict=True))
    for each in op.body.block.ops:
        inner.update(zip(each.results, result_shapes(each, inner), strict=True))
    return [inner[value] for value in op.yielded]


def described_shapes(op: ForeignOp) -> list[SymbolicShape | None]:
    """Return the sizes of what an ONNX node yields, by the names that it carries; None where the rank is unknown.

    A size without a name is different from all others.
    """
    described = op.attributes.get(DIMS)
    words = [_texts(entry) for entry in described] if isa(described, ArrayAttr[Attribute]) else []
    shapes: list[SymbolicShape | None] = []
    for index, result in enumerate(op.outputs):
        if not isa(result.type, TensorType[Attribute]):
            shapes.append(None)
            continue
        names = words[index] if index < len(words) else []
        own = f"%{op.position.value.data}.{index}"
        shapes.append(
            tuple(
                Size.symbol((names[axis] if axis < len(names) else "") or f"{own}.{axis}")
                if size == DYNAMIC
                else Size.known(size)
                for axis, size in enumerate(result.type.get_shape())
            )
        )
    return shapes


def described_by(shapes: Sequence[SymbolicShape | None]) -> Attribute:
    """Return the attribute from which `described_shapes` reads the names of sizes."""
    return ArrayAttr([ArrayAttr([StringAttr(_name_of(size)) for size in shape or ()]) for shape in shapes])


def _name_of(size: Size) -> str:
    """Return the name of a size that is one symbol with a name, else nothing."""
    if size.coefficient != 1 or len(size.powers) != 1:
        return ""
    name, power = size.powers[0]
    return name if power == 1 and not name.startswith("?") else ""
