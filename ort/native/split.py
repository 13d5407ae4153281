"""How the rows of a step are given to threads: the way that is estimated to be the fastest.

One thread does all of them; or threads take pieces until none is left; or, where there are few rows, as many threads
as come in time do tiles together.
"""

from typing import Final

from llvmlite import ir

from redpebble.lowering.llvm.builder import I64, POINTER, i64
from redpebble.ort.native.code import Body, OrtCode
from redpebble.ort.native.sizes import Frame
from redpebble.ort.native.tables import START_NS, WIDTH_WORDS, Header, Step, Width

MOST_ROWS: Final = 64
"""Rows of a piece, unless a step's tiles are wider: enough for the widest tile, and few, so that all end together."""

ALONE, IN_PIECES, TOGETHER = 0, 1, 2


def emit_split(code: OrtCode) -> None:
    """Emit `step_rows`, `split`, `chunk` and `workers (frame, step) -> i64`."""
    _emit_step_rows(code)
    _emit_tiles_ns(code)
    _emit_chunk(code)
    _emit_split(code)
    _emit_workers(code)


def divided_up(body: Body, number: ir.Value, divisor: ir.Value) -> ir.Value:
    """Return the quotient of a number and a positive one, rounded up."""
    return body.builder.udiv(body.builder.sub(body.builder.add(number, divisor), i64(1)), divisor)


def _emit_step_rows(code: OrtCode) -> None:
    """Emit `step_rows (frame, step) -> i64`, 0 for a step that is one piece of work."""
    body = code.body("step_rows", I64, [POINTER, POINTER])
    builder, (frame, step) = body.builder, body.args
    expression = body.number(step, Step.Rows)
    with body.when(builder.icmp_signed("<", expression, i64(0))):
        builder.ret(i64(0))
    builder.ret(body.number(body.pointer(frame, Frame.Values), expression))


def width_table(body: Body, frame: ir.Value, step: ir.Value) -> ir.Value:
    """Return the address of a step's widths, which lie behind the steps."""
    header = body.pointer(frame, Frame.Header)
    steps = body.builder.mul(body.number(header, Header.Steps), i64(len(Step)))
    offset = body.builder.add(steps, body.number(step, Step.WidthTable))
    return body.at(body.pointer(header, Header.StepTable), offset)


def _emit_tiles_ns(code: OrtCode) -> None:
    """Emit `tiles_ns (frame, step, rows, word) -> i64`: the estimate in `word` for the tiles that are made of rows."""
    body = code.body("tiles_ns", I64, [POINTER, POINTER, I64, I64])
    builder, (frame, step, rows, word) = body.builder, body.args
    table, left, total = width_table(body, frame, step), body.words(1), body.words(1)
    body.put(left, 0, rows)
    body.put(total, 0, i64(0))
    with body.each(body.number(step, Step.Widths)) as index:
        row = body.at(table, builder.mul(index, i64(WIDTH_WORDS)))
        now, columns = body.number(left), body.number(row, Width.Columns)
        with body.when(builder.icmp_signed(">=", now, body.number(row, Width.LeastRows))):
            whole, rest = builder.udiv(now, columns), builder.urem(now, columns)
            padded = builder.icmp_signed(">=", rest, body.number(row, Width.LeastRows))
            count = builder.add(whole, builder.zext(padded, I64))
            body.put(total, 0, builder.add(body.number(total), builder.mul(count, body.number(row, word))))
            body.put(left, 0, builder.select(padded, i64(0), rest))
    builder.ret(body.number(total))


def _emit_chunk(code: OrtCode) -> None:
    """Emit `chunk (frame, step) -> i64`: the rows of a piece that a thread takes."""
    body = code.body("chunk", I64, [POINTER, POINTER])
    builder, (frame, step) = body.builder, body.args
    cpus, tile = body.number(frame, Frame.Cpus), body.number(step, Step.TileRows)
    share = divided_up(body, body.call("step_rows", frame, step), cpus)
    share = builder.select(builder.icmp_signed("<", share, i64(MOST_ROWS)), share, i64(MOST_ROWS))
    builder.ret(builder.mul(divided_up(body, share, tile), tile))


def _emit_split(code: OrtCode) -> None:
    """Emit `split (frame, step) -> i64`: ALONE, IN_PIECES or TOGETHER."""
    body = code.body("split", I64, [POINTER, POINTER])
    builder, (frame, step) = body.builder, body.args
    cpus, rows = body.number(frame, Frame.Cpus), body.call("step_rows", frame, step)
    is_little = builder.icmp_signed("<=", rows, body.number(step, Step.AloneRows))
    with body.when(builder.or_(is_little, builder.icmp_signed("==", cpus, i64(1))), likely=True):
        builder.ret(i64(ALONE))
    alone = body.call("tiles_ns", frame, step, rows, i64(Width.Alone))
    chunk = body.call("chunk", frame, step)
    pieces = divided_up(body, rows, chunk)
    rounds = divided_up(body, pieces, cpus)
    piece = body.call("tiles_ns", frame, step, chunk, i64(Width.Alone))
    in_pieces = builder.add(builder.mul(rounds, piece), i64(START_NS))
    share, rest = shares(body, (frame, step), rows, cpus)
    own = body.call("tiles_ns", frame, step, share, i64(Width.Alone))
    others = body.call("tiles_ns", frame, step, rest, i64(Width.Together))
    together = builder.add(builder.add(own, others), i64(START_NS))
    has_shared = builder.icmp_signed("!=", body.number(step, Step.Shared), i64(0))
    is_sooner = builder.icmp_signed("<", together, in_pieces)
    is_sooner = builder.and_(is_sooner, builder.icmp_signed("<", together, alone))
    with body.when(builder.and_(has_shared, is_sooner)):
        builder.ret(i64(TOGETHER))
    builder.ret(builder.select(builder.icmp_signed("<", in_pieces, alone), i64(IN_PIECES), i64(ALONE)))


def shares(
    body: Body, place: tuple[ir.Value, ir.Value], rows: ir.Value, threads: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return the rows that each thread does for itself, in whole tiles of the widest, and what is left for all."""
    builder, widest = body.builder, body.number(width_table(body, *place), Width.Columns)
    round_rows = builder.mul(widest, threads)
    share = builder.mul(builder.udiv(rows, round_rows), widest)
    return share, builder.sub(rows, builder.mul(share, threads))


def _emit_workers(code: OrtCode) -> None:
    """Emit `workers (frame, step) -> i64`: how many threads can work on it, one at least."""
    body = code.body("workers", I64, [POINTER, POINTER])
    builder, (frame, step) = body.builder, body.args
    way = body.call("split", frame, step)
    with body.when(builder.icmp_signed("==", way, i64(ALONE)), likely=True):
        builder.ret(i64(1))
    cpus = body.number(frame, Frame.Cpus)
    with body.when(builder.icmp_signed("==", way, i64(TOGETHER))):
        builder.ret(cpus)
    pieces = divided_up(body, body.call("step_rows", frame, step), body.call("chunk", frame, step))
    builder.ret(builder.select(builder.icmp_signed("<", pieces, cpus), pieces, cpus))
