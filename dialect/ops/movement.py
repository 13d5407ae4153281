"""Ops that move values without changing them: reshape, transpose, concat, split, take."""

from collections.abc import Sequence
from math import prod
from typing import Annotated, ClassVar

from typing_extensions import override
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, i64
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..record import Record, written
from ..tensors import DENSE_TENSOR, DYNAMIC, Shape, compatible, f32_tensor, shape_of, shape_text
from .axis_maps import AxisMap, HasAxisMap, Join, RowMajor, RowWise, own_axes
from .pattern_traits import MovementPatterns

INFERRED = -1
"""An inferred size of a reshape target: what is left over."""


def copied(axis: int) -> int:
    """Return the entry of a reshape target that copies the size of the input's `axis`."""
    return -2 - axis


def _parse_entry(parser: AttrParser) -> int:
    word = parser.parse_optional_identifier()
    if word is None:
        return parser.parse_integer(allow_negative=False)
    if word == "_":
        return INFERRED
    if not (word.startswith("d") and word[1:].isdigit()):
        parser.raise_error(f"expected a size, _ or d0, d1, ..., got {word}")
    return copied(int(word[1:]))


def _entry_text(entry: int) -> str:
    return "_" if entry == INFERRED else f"d{-2 - entry}" if entry < 0 else str(entry)


class TargetShapeAttr(Record, text="{entries}"):
    """The target of a reshape: d0 copies the input's axis 0, _ is what is left over.

    ```mlir
    #pebble.target_shape<[d0, _, 64]>
    ```

    Stored as one integer an axis: the size, `INFERRED`, or `copied(axis)`.
    """

    name = "pebble.target_shape"

    entries: Sequence[Annotated[int, written(_parse_entry, _entry_text)]]

    def verify(self) -> None:
        if self.entries.count(INFERRED) > 1:
            raise VerifyException(f"expected one inferred axis at most, got {self.entries.count(INFERRED)}")
        copies = [entry for entry in self.entries if entry < INFERRED]
        if len(copies) != len(set(copies)):
            raise VerifyException(f"target {self.text} copies an axis twice")

    def result_shape(self, shape: Shape) -> Shape:
        """Return the shape of the result for an input of `shape`.

        Raises:
            VerifyException: the sizes do not fit, or an axis is copied that the input does not have.
        """
        if any(entry < INFERRED and -2 - entry >= len(shape) for entry in self.entries):
            raise VerifyException(f"target {self.text} copies an axis that input {shape_text(shape)} does not have")
        sizes = [DYNAMIC if entry == INFERRED else entry if entry >= 0 else shape[-2 - entry] for entry in self.entries]
        rest = self._without_copies(shape)
        known = prod(entry for entry in self.entries if entry >= 0)
        if DYNAMIC not in rest and INFERRED in self.entries:
            if known == 0 or prod(rest) % known:
                raise VerifyException(f"expected x that fits target {self.text}, got {shape_text(shape)}")
            sizes[self.entries.index(INFERRED)] = prod(rest) // known
        elif DYNAMIC not in rest and prod(rest) != known:
            raise VerifyException(f"expected x that fits target {self.text}, got {shape_text(shape)}")
        return tuple(sizes)

    def _without_copies(self, shape: Shape) -> list[int]:
        """Return the input's sizes that are not copied, each copy taking away one axis."""
        taken = {-2 - entry for entry in self.entries if entry < INFERRED}
        return [size for axis, size in enumerate(shape) if axis not in taken]

    @property
    def text(self) -> str:
        """The entries as a person writes them: `[d0, _, 64]`."""
        return f"[{', '.join(map(_entry_text, self.entries))}]"


class _ReshapeAxes(HasAxisMap):
    """Axes behind all that are merged or cut stay what they are; an axis of size 1 is none."""

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        assert isinstance(op, ReshapeOp)
        source, target = shape_of(op.x), shape_of(op.result)
        before, after = list(own_axes(op.x, "x")), list(own_axes(op.result, "y"))
        left = [axis for axis, size in enumerate(source) if size != 1]
        right = [axis for axis, size in enumerate(target) if size != 1]
        while left and right:
            same = source[left[-1]] == target[right[-1]] != DYNAMIC
            if not same and op.target.entries[right[-1]] != copied(left[-1]):
                break
            after[right.pop()] = before[left.pop()]
        return AxisMap((tuple(before),), (tuple(after),), fixed=frozenset(before) ^ frozenset(after))


class _TransposeAxes(HasAxisMap):
    @override
    def axis_map(self, op: Operation) -> AxisMap:
        assert isinstance(op, TransposeOp)
        axes = own_axes(op.x, "x")
        return AxisMap((axes,), (tuple(axes[axis] for axis in op.order),))


class _TakenAxes(HasAxisMap):
    @override
    def axis_map(self, op: Operation) -> AxisMap:
        assert isinstance(op, TakeOp)
        axes, along = own_axes(op.x, "x"), op.axis.value.data
        return AxisMap((axes,), ((*axes[:along], *axes[along + 1 :]),), fixed=frozenset({axes[along]}))


class _JoinAxes(HasAxisMap):
    """All axes of the parts are the same but for the one along which they follow each other in the whole."""

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        assert isinstance(op, ConcatOp | SplitOp)
        along = op.axis.value.data
        axes = own_axes(op.operands[0], "x")
        join = Join("whole", tuple(f"part{index}" for index in range(len(op.parts))))
        whole = ((*axes[:along], join.whole, *axes[along + 1 :]),)
        parts = tuple((*axes[:along], part, *axes[along + 1 :]) for part in join.parts)
        operands, results = (parts, whole) if isinstance(op, ConcatOp) else (whole, parts)
        return AxisMap(operands, results, join=join)


@irdl_op_definition
class ReshapeOp(IRDLOperation):
    """The same values in another shape.

    ```mlir
    %y = pebble.reshape %x to <[d0, _]> : (tensor<?x8x8xf32>) -> tensor<?x64xf32>
    ```
    """

    name = "pebble.reshape"

    x = operand_def(DENSE_TENSOR)
    target = prop_def(TargetShapeAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), _ReshapeAxes(), RowMajor(), MovementPatterns())
    assembly_format: ClassVar = "$x `to` $target attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, target: TargetShapeAttr) -> None:
        shape = target.result_shape(shape_of(x))
        super().__init__(operands=[x], properties={"target": target}, result_types=[f32_tensor(shape)])

    def verify_(self) -> None:
        expected = self.target.result_shape(shape_of(self.x))
        if not compatible(shape_of(self.result), expected):
            raise VerifyException(f"expected result {shape_text(expected)}, got {shape_text(shape_of(self.result))}")


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """Axes in another order: axis i of the result is axis `axes[i]` of x.

    ```mlir
    %y = pebble.transpose %x axes [0, 2, 1] : (tensor<?x4x2xf32>) -> tensor<?x2x4xf32>
    ```
    """

    name = "pebble.transpose"

    x = operand_def(DENSE_TENSOR)
    axes = prop_def(DenseArrayBase.constr(i64))
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), _TransposeAxes(), RowMajor(), MovementPatterns())
    assembly_format: ClassVar = "$x `axes` $axes attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, axes: Sequence[int]) -> None:
        shape = shape_of(x)
        super().__init__(
            operands=[x],
            properties={"axes": DenseArrayBase.from_list(i64, list(axes))},
            result_types=[f32_tensor([shape[axis] for axis in axes])],
        )

    @property
    def order(self) -> tuple[int, ...]:
        """The axes as Python integers."""
        return tuple(int(axis) for axis in self.axes.get_values())

    def verify_(self) -> None:
        shape = shape_of(self.x)
        if sorted(self.order) != list(range(len(shape))):
            raise VerifyException(f"expected a permutation of axes 0 to {len(shape) - 1}, got {list(self.order)}")
        expected = tuple(shape[axis] for axis in self.order)
        if shape_of(self.result) != expected:
            raise VerifyException(f"expected result {shape_text(expected)}, got {shape_text(shape_of(self.result))}")


def _joined_shape(shapes: Sequence[Shape], axis: int) -> Shape:
    """Return the shape of tensors of `shapes` one after the other along `axis`."""
    if not shapes:
        raise VerifyException("expected one or more operands, got none")
    rank = len(shapes[0])
    if not 0 <= axis < rank:
        raise VerifyException(f"expected axis 0 to {rank - 1}, got {axis}")
    sizes = list(shapes[0])
    for shape in shapes[1:]:
        if len(shape) != rank:
            raise VerifyException(f"expected operands of rank {rank}, got {shape_text(shape)}")
        for index, size in enumerate(shape):
            if index == axis or sizes[index] == DYNAMIC:
                sizes[index] = size if index != axis else sizes[index]
            elif size not in (sizes[index], DYNAMIC):
                raise VerifyException(
                    f"expected operands like {shape_text(shapes[0])} off axis {axis}, got {shape_text(shape)}"
                )
    along = [shape[axis] for shape in shapes]
    sizes[axis] = DYNAMIC if DYNAMIC in along else sum(along)
    return tuple(sizes)


@irdl_op_definition
class ConcatOp(IRDLOperation):
    """Operands one after the other along an axis.

    ```mlir
    %y = pebble.concat %a, %b axis 1 : (tensor<?x4xf32>, tensor<?x2xf32>) -> tensor<?x6xf32>
    ```
    """

    name = "pebble.concat"

    parts = var_operand_def(DENSE_TENSOR)
    axis = prop_def(IntegerAttr.constr(i64))
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), _JoinAxes(), RowWise(), RowMajor(), MovementPatterns())
    assembly_format: ClassVar = "$parts `axis` $axis attr-dict `:` functional-type(operands, results)"

    def __init__(self, parts: Sequence[SSAValue], axis: int) -> None:
        shape = _joined_shape([shape_of(part) for part in parts], axis)
        super().__init__(
            operands=[parts],
            properties={"axis": IntegerAttr(axis, i64)},
            result_types=[f32_tensor(shape)],
        )

    def verify_(self) -> None:
        expected = _joined_shape([shape_of(part) for part in self.parts], self.axis.value.data)
        if not compatible(shape_of(self.result), expected):
            raise VerifyException(f"expected result {shape_text(expected)}, got {shape_text(shape_of(self.result))}")


@irdl_op_definition
class SplitOp(IRDLOperation):
    """One operand cut along an axis into results of known sizes.

    ```mlir
    %a, %b = pebble.split %x axis 1 : (tensor<?x6xf32>) -> (tensor<?x4xf32>, tensor<?x2xf32>)
    ```
    """

    name = "pebble.split"

    x = operand_def(DENSE_TENSOR)
    axis = prop_def(IntegerAttr.constr(i64))
    parts = var_result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), _JoinAxes(), RowWise(), RowMajor(), MovementPatterns())
    assembly_format: ClassVar = "$x `axis` $axis attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, axis: int, sizes: Sequence[int]) -> None:
        shape = shape_of(x)
        super().__init__(
            operands=[x],
            properties={"axis": IntegerAttr(axis, i64)},
            result_types=[[f32_tensor((*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]],
        )

    def verify_(self) -> None:
        shape, axis = shape_of(self.x), self.axis.value.data
        if not self.parts:
            raise VerifyException("expected one or more results, got none")
        joined = _joined_shape([shape_of(part) for part in self.parts], axis)
        if joined[axis] == DYNAMIC:
            raise VerifyException(f"a part of unknown size along axis {axis}")
        if not compatible(shape, joined):
            raise VerifyException(f"expected parts of {shape_text(shape)}, got {shape_text(joined)}")


@irdl_op_definition
class TakeOp(IRDLOperation):
    """The values at one place of an axis, which is gone; places below 0 count from the end.

    A call in which the axis has no such place is refused.

    ```mlir
    %y = pebble.take %x axis 1 at 0 : (tensor<?x?x6xf32>) -> tensor<?x6xf32>
    ```
    """

    name = "pebble.take"

    x = operand_def(DENSE_TENSOR)
    axis = prop_def(IntegerAttr.constr(i64))
    place = prop_def(IntegerAttr.constr(i64))
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), _TakenAxes(), RowMajor())
    assembly_format: ClassVar = "$x `axis` $axis `at` $place attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, axis: int, place: int) -> None:
        shape = shape_of(x)
        super().__init__(
            operands=[x],
            properties={"axis": IntegerAttr(axis, i64), "place": IntegerAttr(place, i64)},
            result_types=[f32_tensor((*shape[:axis], *shape[axis + 1 :]))],
        )

    @property
    def least_size(self) -> int:
        """The size of the axis below which there is no such place."""
        place = self.place.value.data
        return place + 1 if place >= 0 else -place

    def verify_(self) -> None:
        shape, axis = shape_of(self.x), self.axis.value.data
        if not 0 <= axis < len(shape):
            raise VerifyException(f"expected axis 0 to {len(shape) - 1}, got {axis}")
        if shape[axis] != DYNAMIC and shape[axis] < self.least_size:
            place, size = self.place.value.data, shape[axis]
            raise VerifyException(
                f"expected place {-size} to {size - 1} of axis {axis} of {shape_text(shape)}, got {place}"
            )
        expected = (*shape[:axis], *shape[axis + 1 :])
        if not compatible(shape_of(self.result), expected):
            raise VerifyException(f"expected result {shape_text(expected)}, got {shape_text(shape_of(self.result))}")
