"""Ops outside tiles on row-major buffers: movement, broadcasting arithmetic, activations, copies."""

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from llvmlite import ir
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, DivOp, MulOp, PreluOp, SubOp
from ...dialect.ops.movement import ConcatOp, SplitOp, TakeOp, TransposeOp
from ...dialect.ops.tile import TileOp
from ...dialect.symbolic_sizes import ONE, Size, SymbolicShape, product
from ...foundation.extensible_table import ExtensibleTable
from ..calls.steps import Member
from ..calls.words import Words
from ..kernels.elementwise import ARITHMETIC
from ..kernels.kernel_form import activated
from ..llvm.builder import Code
from ..llvm.call_tables import ConstantTable, Packing, SizeTable
from ..llvm.flow import Blocks, loop, when
from ..llvm.strided import Combine, Strided, StridedMap, copy_values, emit_copy, emit_strided
from ..llvm.values import NULL, Bytes, Floats, Index, Longs, Number, Pointers
from ..llvm.vectors import Lanes


class RowRange(NamedTuple):
    """Rows of the batch from `first` to the one before `end`."""

    first: Number
    end: Number


class Sharing(NamedTuple):
    """Arguments of a step that a team does, beside those of others."""

    scratch: Bytes
    """Memory of the thread alone."""
    claim: Words
    """The function `claim` of `calls.steps`, by which the thread gets items."""
    member: Member

    @contextmanager
    def each(self, items: Index, *, meets: bool = True) -> Generator[Number]:
        """Emit a phase: what is emitted in the `with` statement, for those items of so many that this thread claims.

        When the next phase begins all of them are done: behind this one already, unless threads need not meet there.
        """
        self.member.meets = int(meets)
        count = self.scratch.constant(items) if isinstance(items, int) else items
        flow = Blocks(self.scratch.builder, "claim", "claimed", "done")
        flow.enter("claim")
        first = self.claim.number_of(self.member, count)
        flow.branch(first < count, "claimed", "done")
        flow.at("claimed")
        with loop(self.member.held) as item:
            yield first + item
        flow.go("claim")
        flow.at("done")

    @contextmanager
    def unless_done(self, items: int) -> Generator[None]:
        """Emit phases of so many items in all, for threads that come while some are not done."""
        end = self.member.before + items
        with when(self.member.team.finished.current() < end):
            yield
        self.member.before = end


class StepArguments(NamedTuple):
    """Arguments of a step: tables of addresses and sizes, scratch memory, and the rows."""

    buffers: Pointers
    constants: Pointers
    sizes: Longs
    scratch: Bytes
    rows: RowRange


@dataclass(frozen=True)
class TileConstants:
    """The constants of a tile, the number of the first tile with the same functions, and where the constants begin."""

    number: int
    table: ConstantTable
    start: ir.GlobalVariable

    def pointers(self, constants: Pointers) -> Pointers:
        """Return the address of the first pointer of the tile in the table of the network."""
        return constants.at(Longs(constants.builder, self.start)[0])


@dataclass(frozen=True)
class RowMajorStep:
    """The code of one step under construction, and what its emitter may ask."""

    code: Code
    sizes: SizeTable
    size_table: Longs
    """The table of sizes of the call."""
    constants: ConstantTable
    table: Pointers
    """The table of the addresses of packed constants."""
    tile_constants: Callable[[TileOp], TileConstants]
    parts: dict[SSAValue, Sequence[Floats]]
    """The addresses of each operand and result: of row-major floats one, of edges those of all arrays."""
    scratch: Bytes
    rows: RowRange
    sharing: Sharing | None = None
    """Arguments of threads that do rows together; None where each has rows of its own."""

    @cached_property
    def pointers(self) -> dict[SSAValue, Floats]:
        """The address of each operand and result, row-major floats."""
        return {value: first for value, (first, *_) in self.parts.items()}

    def arrays(self, key: Hashable, pack: Packing, op: Operation | None = None) -> list[Bytes]:
        """Return the addresses of the arrays of `key`, which `pack` makes of an op."""
        return self.constants.pointers(self.table, key, pack, op)

    def number(self, size: Size) -> Number:
        """Return a size of the call."""
        return self.sizes.number(self.size_table, size)

    def null(self) -> Floats:
        """Return the null address of an optional array that is missing."""
        return Floats(self.size_table.builder, NULL)

    def strides(self, shape: SymbolicShape) -> list[Index]:
        """Return the row-major stride of every axis in values; 1 as a number for the last axis."""
        products = [product(shape[axis + 1 :]) for axis in range(len(shape))]
        return [1 if stride == ONE else self.number(stride) for stride in products]

    def emit_map(self, sizes: Sequence[Size], target: Strided, operands: Sequence[Strided], combine: Combine) -> None:
        """Emit loops over axes of these sizes that combine the operands' values into the target's."""
        work = StridedMap(target, operands, combine)
        emit_strided(self.code, [self.number(size) for size in sizes], work)

    def emit_copy(self, source: Floats, target: Floats, size: Size, *, is_bytes: bool = False) -> None:
        """Emit a copy of `size` values, floats or bytes."""
        if not is_bytes:
            emit_copy(self.code, source, target, self.number(size))
            return
        with loop(self.number(size)) as index:
            target.cast(Bytes)[index] = source.cast(Bytes).narrow(index)


class PartCopy(NamedTuple):
    """The sizes of a copy between a part and the whole it lies in, and both sides of it."""

    sizes: tuple[Size, Size]
    inside: Strided
    outside: Strided


RowMajorEmitter = Callable[[Any, RowMajorStep], None]
"""Emits an op on row-major buffers."""


def emit_activate(op: ActivateOp, step: RowMajorStep) -> None:
    """Emit an activation of every value."""

    def combine(lanes: Lanes, values: Sequence[ir.Value]) -> ir.Value:
        return activated(lanes, op.activation, values)[0]

    source, target = (Strided(step.pointers[value], (1,)) for value in (op.x, op.result))
    step.emit_map([product(step.sizes.shapes[op.x])], target, [source], combine)


def emit_transpose(op: TransposeOp, step: RowMajorStep) -> None:
    """Emit the copy of a value in the order of the result's axes."""
    shape, strides = step.sizes.shapes[op.x], step.strides(step.sizes.shapes[op.x])
    result = step.sizes.shapes[op.result]
    source = Strided(step.pointers[op.x], tuple(strides[axis] for axis in op.order))
    target = Strided(step.pointers[op.result], tuple(step.strides(result)))
    step.emit_map([shape[axis] for axis in op.order], target, [source], copy_values)


def emit_concat(op: ConcatOp, step: RowMajorStep) -> None:
    """Emit the copies of the parts into the whole."""
    for sizes, inside, outside in _parts(list(op.parts), op.result, op.axis.value.data, step):
        step.emit_map(sizes, inside, [outside], copy_values)


def emit_split(op: SplitOp, step: RowMajorStep) -> None:
    """Emit the copies of the parts out of the whole."""
    for sizes, inside, outside in _parts(list(op.parts), op.x, op.axis.value.data, step):
        step.emit_map(sizes, outside, [inside], copy_values)


def emit_take(op: TakeOp, step: RowMajorStep) -> None:
    """Emit the copy of what stands at the place; calls have seen to it that there is one."""
    shape, axis, place = step.sizes.shapes[op.x], op.axis.value.data, op.place.value.data
    inner = product(shape[axis + 1 :])
    line = step.number(inner)
    index = line.constant(place) if place >= 0 else step.number(shape[axis]) + place
    source = Strided(step.pointers[op.x].at(index * line), (step.number(product(shape[axis:])), 1))
    step.emit_map([product(shape[:axis]), inner], Strided(step.pointers[op.result], (line, 1)), [source], copy_values)


def _parts(parts: Sequence[SSAValue], whole: SSAValue, axis: int, step: RowMajorStep) -> Iterator[PartCopy]:
    """Yield the copies between `parts` and `whole`, in which they lie one after the other along `axis`."""
    shape = step.sizes.shapes[whole]
    outer, whole_line = product(shape[:axis]), step.number(product(shape[axis:]))
    offset = whole_line.constant(0)
    for part in parts:
        size = product(step.sizes.shapes[part][axis:])
        line = step.number(size)
        inside = Strided(step.pointers[whole].at(offset), (whole_line, 1))
        yield PartCopy((outer, size), inside, Strided(step.pointers[part], (line, 1)))
        offset = offset + line


def emit_binary(op: BinaryOp, step: RowMajorStep) -> None:
    """Emit left op right; neighbouring axes over which both operands run or stand still become one."""
    shapes = step.sizes.shapes
    repeated = [_repeated(shapes[operand], shapes[op.result]) for operand in (op.left, op.right)]
    axes = _merged(shapes[op.result], list(zip(*repeated, strict=True)))
    sizes = [size for size, _ in axes] or [ONE]
    operands = [
        Strided(step.pointers[operand], _operand_strides(step, sizes, [flags[side] for _, flags in axes]))
        for side, operand in enumerate((op.left, op.right))
    ]
    target = Strided(step.pointers[op.result], _operand_strides(step, sizes, [False] * len(axes)))
    combine = ARITHMETIC[op.name]

    def both(lanes: Lanes, values: Sequence[ir.Value]) -> ir.Value:
        return combine(lanes, values[0], values[1])

    step.emit_map(sizes, target, operands, both)


def _repeated(shape: SymbolicShape, result: SymbolicShape) -> list[bool]:
    """Return for each axis of the result whether an operand of `shape` stands still along it."""
    padded = (ONE,) * (len(result) - len(shape)) + shape
    return [size == ONE and whole != ONE for size, whole in zip(padded, result, strict=True)]


def _operand_strides(step: RowMajorStep, sizes: Sequence[Size], still: Sequence[bool]) -> tuple[Index, ...]:
    """Return the strides of an operand that lacks the axes along which it stands still."""
    strides: list[Index] = []
    for axis, repeats in enumerate(still or [True]):
        rest = [size for size, skip in zip(sizes[axis + 1 :], still[axis + 1 :], strict=True) if not skip]
        stride = product(rest)
        strides.append(0 if repeats else 1 if stride == ONE else step.number(stride))
    return tuple(strides)


def _merged(shape: SymbolicShape, flags: Sequence[tuple[bool, ...]]) -> list[tuple[Size, tuple[bool, ...]]]:
    """Return the axes of `shape` with those of equal flags side by side multiplied into one; axes of 1 vanish."""
    axes: list[tuple[Size, tuple[bool, ...]]] = []
    for size, flag in zip(shape, flags, strict=True):
        if size == ONE:
            continue
        if axes and axes[-1][1] == flag:
            axes[-1] = (axes[-1][0] * size, flag)
        else:
            axes.append((size, flag))
    return axes


ROW_MAJOR_EMITTERS: Final = ExtensibleTable[type[Operation], RowMajorEmitter](
    {
        TransposeOp: emit_transpose,
        ConcatOp: emit_concat,
        SplitOp: emit_split,
        TakeOp: emit_take,
        AddOp: emit_binary,
        SubOp: emit_binary,
        MulOp: emit_binary,
        DivOp: emit_binary,
        PreluOp: emit_binary,
        ActivateOp: emit_activate,
    }
)
"""The emitter of each op outside tiles; inside: `redpebble.lowering.tiles.emitters`."""


def emit(op: Operation, step: RowMajorStep) -> None:
    """Emit one op.

    Raises:
        ValueError: the op has no row-major code.
    """
    emitter = ROW_MAJOR_EMITTERS.get(type(op))
    if emitter is None:
        raise ValueError(f"{op.name} has no code outside a pebble.tile: run pebble-tile before, or pebble-compile")
    emitter(op, step)
