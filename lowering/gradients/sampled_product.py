"""Gradients of constants: sums over all rows of a call, for each connection of a weight, or each feature.

Registers, for V = 4 vectors of rows and 8 connections c at once (V + 9 of 16 or 32 registers):

    y[v]       gradient of one output in V vectors of rows         loaded once an output
    sum[c]     += y[v] * x[c][v]                                   V fma a connection, x from memory
    result[c]  += sums over the lanes of all sum[c], whose halves meet in one register

Rows come in blocks of V vectors, which are transposed first, so that what a connection multiplies lies side by side.
Rows that fill up the last block have gradients of zero. Blocks of inputs that stay in the first-level cache lose more
by short loops than they gain: 2.2 to 2.6 instead of 1.9 ms for 1024x1024 at a density of 0.1 and 256 rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation

from ...dialect.ops.constants import SparseConstantOp
from ...dialect.ops.training.gradients import SampledProductOp, SumRowsOp
from ...dialect.symbolic_sizes import Size, product
from ...dialect.tensors import shape_of
from ..llvm.builder import FLOAT_BYTES, I32, I64, POINTER, Code, counted_loop, float_at, i64
from ..llvm.call_tables import ConstantTable
from ..llvm.transposition import rows_to_columns
from ..llvm.vectors import FLOAT, Lanes
from ..program import TiledRows, TileTime
from ..tiles.row_major import RowMajorStep

ROW_VECTORS: Final = 4
"""Vectors of rows in a block."""

AT_ONCE: Final = 8
"""Connections whose sums over lanes are made together, as far as there are lanes."""

OUTPUTS: Final = 16
"""Outputs that a thread takes at once."""

OUTPUTS_US: Final = 40.0
"""Microseconds of these, about."""


@dataclass(frozen=True)
class SampledProductStep:
    """The code of a step, whose rows are the outputs of the weight."""

    op: SampledProductOp
    step: RowMajorStep
    constants: ConstantTable
    constant_table: ir.Value
    scratch: ir.Value

    def emit(self, begin: ir.Value, end: ir.Value) -> None:
        """Emit the connections of the outputs from `begin` to the one before `end`."""
        builder, op, owner = self.step.builder, self.op, self.op.weight.owner
        key = (op.weight, "pattern")
        if not self.constants.has(key):
            assert isinstance(owner, Operation)
            self.constants.add(key, pack_pattern, owner)
        pattern = self.constants.pointers(builder, self.constant_table, key)
        addresses = [self.step.pointers[value] for value in (op.x, op.y, op.result)]
        sizes = [self.step.value(self.step.sizes.shapes[op.x][0]), *map(i64, shape_of(op.weight))]
        function = sampled_product(self.step.code)
        builder.call(function, [*addresses, *pattern, self.scratch, *sizes, begin, end])


def pack_pattern(op: Operation | None) -> list[NDArray[np.generic]]:
    """Return the first connection of each output, and the input of each connection.

    Raises:
        ValueError: the op is no weight.
    """
    if isinstance(op, SparseConstantOp):
        return [op.weight.pointers, op.weight.rows.astype(np.int32)]
    if op is None:
        raise ValueError("a gradient of what is no weight")
    inputs, outputs = shape_of(op.results[0])
    return [np.arange(outputs + 1) * inputs, np.tile(np.arange(inputs, dtype=np.int32), outputs)]


def sampled_scratch_bytes(op: SampledProductOp, lanes: int) -> int:
    """Return the bytes for blocks of both operands, feature-major."""
    return sum(shape_of(op.weight)) * ROW_VECTORS * lanes * FLOAT_BYTES


def sampled_rows(op: SampledProductOp) -> Size:
    """Return the rows of the step."""
    return Size.known(shape_of(op.weight)[1])


def sampled_tiles() -> TiledRows:
    """Return how threads may cut those rows."""
    return TiledRows((TileTime(OUTPUTS, 1, OUTPUTS_US),), 1)


def sampled_product(code: Code) -> ir.Function:
    """Return `void (x, y, result, pointers, inputs, scratch, rows, K, N, begin, end)` for outputs `begin` to `end`."""
    columns = ROW_VECTORS * code.target.lanes

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, result, pointers, inputs, scratch, rows, input_count, output_count, begin, end = args
        y_columns = float_at(builder, scratch, builder.mul(input_count, i64(columns)))
        own = builder.sub(end, begin)
        first, last = (_word(builder, pointers, index) for index in (begin, end))
        with counted_loop(builder, builder.sub(last, first)) as index:
            builder.store(ir.Constant(FLOAT, 0.0), float_at(builder, result, builder.add(first, index)))
        turned = rows_to_columns(code, columns)
        with counted_loop(builder, rows, columns) as row:
            left = builder.sub(rows, row)
            count = builder.select(builder.icmp_signed("<", left, i64(columns)), left, i64(columns))
            source = float_at(builder, x, builder.mul(row, input_count))
            builder.call(turned, [source, scratch, input_count, input_count, count, i64(columns)])
            source = float_at(builder, y, builder.add(builder.mul(row, output_count), begin))
            builder.call(turned, [source, y_columns, output_count, own, count, i64(columns)])
            with counted_loop(builder, own) as output:
                line = float_at(builder, y_columns, builder.mul(output, i64(columns)))
                with counted_loop(builder, builder.sub(i64(columns), count)) as further:
                    builder.store(ir.Constant(FLOAT, 0.0), float_at(builder, line, builder.add(count, further)))
                of_all = builder.add(begin, output)
                connections = [_word(builder, pointers, at) for at in (of_all, builder.add(of_all, i64(1)))]
                _emit_output(code, builder, line, (scratch, inputs, result), connections)

    return code.function("sampled_product", [POINTER] * 6 + [I64] * 5, body)


def _emit_output(
    code: Code, builder: ir.IRBuilder, line: ir.Value, tables: Sequence[ir.Value], connections: Sequence[ir.Value]
) -> None:
    """Emit the connections of one output, for a block of rows."""
    (x, inputs, result), (first, behind) = tables, connections
    lanes = code.lanes(builder)
    y = [lanes.load(float_at(builder, line, i64(vector * lanes.width))) for vector in range(ROW_VECTORS)]

    def product(connection: ir.Value) -> ir.Value:
        source = builder.load(builder.gep(inputs, [connection], source_etype=I32), typ=I32)
        start = builder.mul(builder.zext(source, I64), i64(ROW_VECTORS * lanes.width))
        places = [builder.add(start, i64(vector * lanes.width)) for vector in range(ROW_VECTORS)]
        values = [lanes.load(float_at(builder, x, place)) for place in places]
        total = lanes.mul(y[0], values[0])
        for mine, other in zip(y[1:], values[1:], strict=True):
            total = lanes.fma(mine, other, total)
        return total

    count = builder.sub(behind, first)
    at_once = min(AT_ONCE, lanes.width)
    whole = builder.sub(count, builder.urem(count, i64(at_once)))
    with counted_loop(builder, whole, at_once) as index:
        start = builder.add(first, index)
        sums = _sums(lanes, [product(builder.add(start, i64(offset))) for offset in range(at_once)])
        few = code.lanes(builder, at_once)
        address = float_at(builder, result, start)
        few.store(few.add(few.load(address), sums), address)
    with counted_loop(builder, builder.sub(count, whole)) as rest:
        connection = builder.add(first, builder.add(whole, rest))
        address = float_at(builder, result, connection)
        total = lanes.horizontal_sum(product(connection))
        builder.store(builder.fadd(builder.load(address, typ=FLOAT), total), address)


def _sums(lanes: Lanes, vectors: Sequence[ir.Value]) -> ir.Value:
    """Return a vector of the sums over the lanes of each of some vectors, whose halves meet in one another."""
    builder, current, segment = lanes.builder, list(vectors), lanes.width
    while len(current) > 1:
        half = len(current) // 2
        current = [_folded(builder, *pair, segment) for pair in zip(current[:half], current[half:], strict=True)]
        segment //= 2
    (total,) = current
    while segment > 1:
        total = _folded(builder, total, None, segment)
        segment //= 2
    return total


def _folded(builder: ir.IRBuilder, left: ir.Value, right: ir.Value | None, segment: int) -> ir.Value:
    """Return sums of both halves of each segment of lanes: those of `left`, each before the one of `right`."""
    assert isinstance(left.type, ir.VectorType)
    width = len(left.type)
    starts = [start + side for start in range(0, width, segment) for side in ((0,) if right is None else (0, width))]
    halves: list[ir.Value] = []
    for offset in (0, segment // 2):
        lanes = [start + offset + lane for start in starts for lane in range(segment // 2)]
        mask = ir.Constant(ir.VectorType(I32, len(lanes)), lanes)
        halves.append(builder.shuffle_vector(left, left if right is None else right, mask))
    return builder.fadd(halves[0], halves[1])


def emit_sum_rows(op: SumRowsOp, step: RowMajorStep) -> None:
    """Emit the sums of all rows of each sample, added one after the other."""
    builder, shape = step.builder, step.sizes.shapes[op.x]
    features = shape_of(op.x)[-1]
    rows, samples = step.value(shape[-2]), step.value(product(shape[:-2]))
    whole = features - features % step.code.target.lanes
    with counted_loop(builder, samples) as sample:
        x = float_at(builder, step.pointers[op.x], builder.mul(sample, builder.mul(rows, i64(features))))
        result = float_at(builder, step.pointers[op.result], builder.mul(sample, i64(features)))
        with counted_loop(builder, i64(features)) as feature:
            builder.store(ir.Constant(FLOAT, 0.0), float_at(builder, result, feature))
        with counted_loop(builder, rows) as row:
            start = builder.mul(row, i64(features))
            for width, begin, stop in ((step.code.target.lanes, 0, whole), (1, whole, features)):
                lanes = step.code.lanes(builder, width)
                with counted_loop(builder, i64(stop - begin), width) as offset:
                    feature = builder.add(offset, i64(begin))
                    target = float_at(builder, result, feature)
                    value = lanes.load(float_at(builder, x, builder.add(start, feature)))
                    lanes.store(lanes.add(lanes.load(target), value), target)


def _word(builder: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    return builder.load(builder.gep(table, [index], source_etype=I64), typ=I64)
