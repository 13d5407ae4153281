"""The loop that cuts rows into tiles of the widths for which code exists."""

from collections.abc import Mapping, Sequence

from llvmlite import ir
from xdsl.ir import SSAValue

from redpebble.dialect.tile import TileOp
from redpebble.lowering.emission import FLOAT_BYTES, I64, POINTER, Code, byte_at, i64
from redpebble.lowering.tables import ConstantTable
from redpebble.lowering.tile_code import TileCode, features_of, plan_scratch, scratch_places

TileSurroundings = tuple[
    int, Mapping[SSAValue, ir.Value], tuple[ConstantTable, ir.Value], tuple[ir.Value, ir.Value, ir.Value]
]
"""Number of the step; addresses of operands and results; constants and their table; scratch, first row, end."""


def emit_tile_loop(code: Code, builder: ir.IRBuilder, op: TileOp, surroundings: TileSurroundings) -> int:
    """Emit the tiles of `op` over the rows from begin to end; return the bytes of scratch that a tile needs.

    A width is used while more than the middle between it and the next narrower one is left: fewer rows are done sooner
    by narrower tiles than by one that is mostly padding.
    """
    index, pointers, (constants, constant_table), (scratch, begin, end) = surroundings
    widths, scratch_bytes = op.schedule.tile_widths, 0
    outer = [pointers[value] for value in (*op.inputs, *op.outputs)]
    row: ir.Value = begin
    for narrower, width in reversed(list(zip((0, *widths), widths, strict=False))):
        function, used = _tile_function(code, op, (f"tile{index}_w{width}", width, constants))
        scratch_bytes = max(scratch_bytes, used)
        least = narrower + (width - narrower) // 2 + 1 if narrower else 1
        row = _emit_width(builder, (row, end, least, width), (function, [*outer, constant_table, scratch]))
    return scratch_bytes


def _emit_width(
    builder: ir.IRBuilder,
    rows: tuple[ir.Value, ir.Value, int, int],
    call: tuple[ir.Function, Sequence[ir.Value]],
) -> ir.Value:
    """Emit tiles of one width while at least `least` rows are left; return the row after the last one."""
    start, end, least, width = rows
    function, arguments = call
    before = builder.block
    header = builder.append_basic_block("tiles")
    body = builder.append_basic_block("tile")
    after = builder.append_basic_block("rest")
    builder.branch(header)
    builder.position_at_end(header)
    row = builder.phi(I64, "row")
    row.add_incoming(start, before)
    left = builder.sub(end, row)
    builder.cbranch(builder.icmp_signed(">=", left, i64(least)), body, after)
    builder.position_at_end(body)
    count = builder.select(builder.icmp_signed("<", left, i64(width)), left, i64(width))
    builder.call(function, [*arguments, row, count])
    row.add_incoming(builder.add(row, count), builder.block)
    builder.branch(header)
    builder.position_at_end(after)
    return row


def _tile_function(code: Code, op: TileOp, form: tuple[str, int, ConstantTable]) -> tuple[ir.Function, int]:
    """Return `void (operands..., results..., constants, scratch, first row, row count)` and its bytes of scratch."""
    name, width, constants = form
    offsets, total = plan_scratch(op, width)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        *outer, table, scratch, first, count = args
        tile = TileCode(code, builder, constants, table, width, scratch_places(builder, scratch, offsets))
        inputs, outputs = outer[: len(op.inputs)], outer[len(op.inputs) :]
        for argument, pointer in zip(op.body.block.args, inputs, strict=True):
            tile.load_rows(argument, _row(builder, pointer, first, argument), count)
        for inner in op.body.block.ops:
            tile.emit(inner)
        for value, pointer in zip(op.yielded, outputs, strict=True):
            tile.store_rows(value, _row(builder, pointer, first, value), count)

    arguments = [POINTER] * (len(op.inputs) + len(op.outputs) + 2) + [I64, I64]
    return code.function(name, arguments, body), total


def _row(builder: ir.IRBuilder, pointer: ir.Value, row: ir.Value, value: SSAValue) -> ir.Value:
    """Return the address of a row of a row-major buffer with the features of `value`."""
    return byte_at(builder, pointer, builder.mul(row, i64(features_of(value) * FLOAT_BYTES)))
