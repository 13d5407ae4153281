"""Ops outside tiles on row-major buffers: transpose, concat, split, broadcasting arithmetic, activations, copies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir
from xdsl.ir import Operation, SSAValue

from redpebble.dialect.ops.elementwise import ActivateOp, BinaryOp
from redpebble.dialect.ops.movement import ConcatOp, SplitOp, TransposeOp
from redpebble.dialect.symbolic_sizes import ONE, Size, SymbolicShape, product
from redpebble.lowering.kernels.elementwise import ARITHMETIC
from redpebble.lowering.kernels.kernel_form import activated
from redpebble.lowering.llvm.builder import Code, float_at, i64
from redpebble.lowering.llvm.call_tables import SizeTable
from redpebble.lowering.llvm.strided import Combine, Strided, StridedMap, copy_values, emit_copy, emit_strided
from redpebble.lowering.llvm.vectors import Lanes


@dataclass(frozen=True)
class RowMajorStep:
    """The code of one op outside tiles."""

    code: Code
    builder: ir.IRBuilder
    sizes: SizeTable
    size_table: ir.Value
    """The table of sizes of the call, [sizes] 64-bit words."""
    pointers: Mapping[SSAValue, ir.Value]
    """The address of each operand and result, row-major floats."""

    def emit(self, op: Operation) -> None:
        """Emit `op`.

        Raises:
            ValueError: the op has no row-major code.
        """
        match op:
            case TransposeOp():
                self._emit_transpose(op)
            case ConcatOp():
                self._emit_parts(list(op.parts), op.result, op.axis.value.data, gather=True)
            case SplitOp():
                self._emit_parts(list(op.parts), op.x, op.axis.value.data, gather=False)
            case BinaryOp():
                self._emit_binary(op)
            case ActivateOp():
                self._emit_activate(op)
            case _:
                raise ValueError(f"{op.name} has no code outside a pebble.tile")

    def emit_copy(self, source: ir.Value, target: ir.Value, size: Size) -> None:
        """Emit a copy of `size` values."""
        emit_copy(self.code, self.builder, source, target, self._value(size))

    def _emit(self, sizes: Sequence[Size], target: Strided, operands: Sequence[Strided], combine: Combine) -> None:
        work = StridedMap(target, operands, combine)
        emit_strided(self.code, self.builder, [self._value(size) for size in sizes], work)

    def _emit_activate(self, op: ActivateOp) -> None:
        def combine(lanes: Lanes, values: Sequence[ir.Value]) -> ir.Value:
            return activated(lanes, op.activation, values)[0]

        source, target = (Strided(self.pointers[value], (1,)) for value in (op.x, op.result))
        self._emit([product(self.sizes.shapes[op.x])], target, [source], combine)

    def _value(self, size: Size) -> ir.Value:
        return self.sizes.value(self.builder, self.size_table, size)

    def _strides(self, shape: SymbolicShape) -> list[ir.Value | int]:
        """Return the row-major stride of every axis in values; 1 as a number for the last axis."""
        products = [product(shape[axis + 1 :]) for axis in range(len(shape))]
        return [1 if stride == ONE else self._value(stride) for stride in products]

    def _emit_transpose(self, op: TransposeOp) -> None:
        shape, strides = self.sizes.shapes[op.x], self._strides(self.sizes.shapes[op.x])
        result = self.sizes.shapes[op.result]
        source = Strided(self.pointers[op.x], tuple(strides[axis] for axis in op.order))
        target = Strided(self.pointers[op.result], tuple(self._strides(result)))
        self._emit([shape[axis] for axis in op.order], target, [source], copy_values)

    def _emit_parts(self, parts: Sequence[SSAValue], whole: SSAValue, axis: int, *, gather: bool) -> None:
        """Emit the copies between `parts` and `whole`, which lie in it one after the other along `axis`."""
        shape = self.sizes.shapes[whole]
        outer, whole_line = product(shape[:axis]), self._value(product(shape[axis:]))
        offset: ir.Value = i64(0)
        for part in parts:
            size = product(self.sizes.shapes[part][axis:])
            line = self._value(size)
            inside = Strided(float_at(self.builder, self.pointers[whole], offset), (whole_line, 1))
            outside = Strided(self.pointers[part], (line, 1))
            target, source = (inside, outside) if gather else (outside, inside)
            self._emit([outer, size], target, [source], copy_values)
            offset = self.builder.add(offset, line)

    def _emit_binary(self, op: BinaryOp) -> None:
        """Emit left op right; neighbouring axes over which both operands run or stand still become one."""
        result = self.sizes.shapes[op.result]
        repeated = [self._repeated(operand, result) for operand in (op.left, op.right)]
        axes = _merged(result, list(zip(*repeated, strict=True)))
        sizes = [size for size, _ in axes] or [ONE]
        operands = [
            Strided(self.pointers[operand], self._operand_strides(sizes, [flags[side] for _, flags in axes]))
            for side, operand in enumerate((op.left, op.right))
        ]
        target = Strided(self.pointers[op.result], self._operand_strides(sizes, [False] * len(axes)))
        combine = ARITHMETIC[op.name]

        def both(lanes: Lanes, values: Sequence[ir.Value]) -> ir.Value:
            return combine(lanes, values[0], values[1])

        self._emit(sizes, target, operands, both)

    def _repeated(self, operand: SSAValue, result: SymbolicShape) -> list[bool]:
        """Return for each axis of the result whether the operand stands still along it."""
        shape = self.sizes.shapes[operand]
        padded = (ONE,) * (len(result) - len(shape)) + shape
        return [size == ONE and whole != ONE for size, whole in zip(padded, result, strict=True)]

    def _operand_strides(self, sizes: Sequence[Size], still: Sequence[bool]) -> tuple[ir.Value | int, ...]:
        """Return the strides of an operand that lacks the axes along which it stands still."""
        strides: list[ir.Value | int] = []
        for axis, repeats in enumerate(still or [True]):
            rest = [size for size, skip in zip(sizes[axis + 1 :], still[axis + 1 :], strict=True) if not skip]
            stride = product(rest)
            strides.append(0 if repeats else 1 if stride == ONE else self._value(stride))
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
