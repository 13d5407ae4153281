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
from typing import Final, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation

from ...dialect.ops.constants import SparseConstantOp
from ...dialect.ops.training.gradients import SampledProductOp, SumRowsOp
from ...dialect.symbolic_sizes import Size, product
from ...dialect.tensors import shape_of
from ..llvm.builder import Code
from ..llvm.flow import call, loop
from ..llvm.transposition import rows_to_columns
from ..llvm.values import FLOAT, FLOAT_BYTES, I32, Floats, Ints, Longs, Number
from ..llvm.vectors import Lanes
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

ZERO: Final = ir.Constant(FLOAT, 0.0)


@dataclass(frozen=True)
class SampledProductStep:
    """The code of a step, whose rows are the outputs of the weight."""

    op: SampledProductOp
    step: RowMajorStep

    def emit(self, begin: Number, end: Number) -> None:
        """Emit the connections of the outputs from `begin` to the one before `end`."""
        op, owner = self.op, self.op.weight.owner
        assert isinstance(owner, Operation)
        pattern = self.step.arrays((op.weight, "pattern"), pack_pattern, owner)
        addresses = [self.step.pointers[value] for value in (op.x, op.y, op.result)]
        rows = self.step.number(self.step.sizes.shapes[op.x][0])
        function = sampled_product(self.step.code)
        call(function, *addresses, *pattern, self.step.scratch, rows, *shape_of(op.weight), begin, end)


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

    @code.kernel("sampled_product")
    def kernel(
        x: Floats,
        y: Floats,
        result: Floats,
        pointers: Longs,
        inputs: Ints,
        scratch: Floats,
        rows: Number,
        input_count: Number,
        output_count: Number,
        begin: Number,
        end: Number,
    ) -> None:
        y_columns = scratch.at(input_count * columns)
        own, turned = end - begin, rows_to_columns(code, columns)
        first, last = pointers[begin], pointers[end]
        with loop(last - first) as index:
            result[first + index] = ZERO
        with loop(rows, columns) as row:
            # a block of rows of both operands, as columns
            count = (rows - row).smaller(columns)
            call(turned, x.at(row * input_count), scratch, input_count, input_count, count, columns)
            call(turned, y.at(row * output_count + begin), y_columns, output_count, own, count, columns)
            with loop(own) as output:
                line = y_columns.at(output * columns)
                with loop(columns - count) as further:
                    line[count + further] = ZERO
                of_all = begin + output
                connections = pointers[of_all], pointers[of_all + 1]
                _emit_output(code, line, _Tables(scratch, inputs, result), connections)

    return kernel


class _Tables(NamedTuple):
    """Columns of x, the input of each connection, and the result of each."""

    x: Floats
    inputs: Ints
    result: Floats


def _emit_output(code: Code, line: Floats, tables: _Tables, connections: tuple[Number, Number]) -> None:
    """Emit the connections of one output, for a block of rows."""
    (x, inputs, result), (first, behind), lanes = tables, connections, code.lanes(line)
    y = [lanes.load(line.at(vector * lanes.width)) for vector in range(ROW_VECTORS)]

    def product(connection: Number) -> ir.Value:
        start = inputs[connection] * (ROW_VECTORS * lanes.width)
        places = [start + vector * lanes.width for vector in range(ROW_VECTORS)]
        values = [lanes.load(x.at(place)) for place in places]
        total = lanes.mul(y[0], values[0])
        for mine, other in zip(y[1:], values[1:], strict=True):
            total = lanes.fma(mine, other, total)
        return total

    # some connections at once, whose sums over lanes are made together
    count, at_once = behind - first, min(AT_ONCE, lanes.width)
    whole = count - count % at_once
    with loop(whole, at_once) as index:
        start = first + index
        sums = _sums(lanes, [product(start + offset) for offset in range(at_once)])
        few, address = code.lanes(line, at_once), result.at(start)
        few.store(few.add(few.load(address), sums), address)
    with loop(count - whole) as rest:
        connection = first + (whole + rest)
        address = result.at(connection)
        total = lanes.horizontal_sum(product(connection))
        address[0] = line.builder.fadd(address[0], total)


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
    shape, features = step.sizes.shapes[op.x], shape_of(op.x)[-1]
    rows, samples = step.number(shape[-2]), step.number(product(shape[:-2]))
    whole = features - features % step.code.target.lanes
    with loop(samples) as sample:
        x = step.pointers[op.x].at(sample * (rows * features))
        result = step.pointers[op.result].at(sample * features)
        with loop(rows.constant(features)) as feature:
            result[feature] = ZERO
        with loop(rows) as row:
            # whole vectors of features, then single ones
            start = row * features
            for width, begin, stop in ((step.code.target.lanes, 0, whole), (1, whole, features)):
                lanes = step.code.lanes(x, width)
                with loop(rows.constant(stop - begin), width) as offset:
                    feature = offset + begin
                    target = result.at(feature)
                    value = lanes.load(x.at(start + feature))
                    lanes.store(lanes.add(lanes.load(target), value), target)
