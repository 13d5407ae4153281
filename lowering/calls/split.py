"""Split of the rows of a step over threads: the one that is estimated to be the fastest.

One thread does all of them; or threads take chunks until none is left; or each does as many of the widest tiles as the
others, and they do together what is left. In all of them a row becomes the same bits.
"""

from llvmlite import ir

from ..llvm.builder import I64, POINTER, VOID, i64
from .row_tiles import tiles_of_width
from .table import Frame, Header, Split, Step, Width
from .words import Body, WordCode


def emit_split(code: WordCode) -> None:
    """Emit `split (frame) -> i64`, the most threads that work on a step."""
    _emit_tiles(code)
    _emit_try_chunks(code)
    _emit_try_sharing(code)
    _emit_split_step(code)
    _emit_split(code)


def _divided_up(body: Body, number: ir.Value, divisor: ir.Value) -> ir.Value:
    """Return the quotient of a number and a positive one, rounded up."""
    return body.builder.udiv(body.builder.sub(body.builder.add(number, divisor), i64(1)), divisor)


def _emit_tiles(code: WordCode) -> None:
    """Emit `tiles (step, rows, word, narrow) -> ns`: the estimate in `word` for the tiles made of some rows.

    Behind `narrow` are the rows that are left for tiles whose bits differ from those of wider ones.
    """
    body = code.body("tiles", I64, [POINTER, I64, I64, POINTER])
    builder, (step, rows, word, narrow) = body.builder, body.args
    table, left, total = body.pointer(step, Step.WidthTable), body.words(1), body.words(1)
    body.put(left, 0, rows)
    body.put(total, 0, i64(0))
    body.put(narrow, 0, rows)
    with body.each(body.number(step, Step.Widths)) as index:
        row = body.at(table, builder.mul(index, i64(len(Width))))
        now, columns, least = body.number(left), body.number(row, Width.Columns), body.number(row, Width.LeastRows)
        with body.when(builder.icmp_signed(">=", now, least)):
            made = tiles_of_width(builder, now, columns, least)
            body.put(total, 0, builder.add(body.number(total), builder.mul(made.number, body.number(row, word))))
            body.put(left, 0, builder.sub(now, made.rows))
        with body.when(builder.icmp_signed(">=", columns, body.number(step, Step.SameFrom))):
            body.put(narrow, 0, body.number(left))
    builder.ret(body.number(total))


def _emit_try_chunks(code: WordCode) -> None:
    """Emit `try_chunks (frame, step, split, columns, narrow, best)`: chunks of whole tiles, if that is sooner.

    Each chunk is cut into tiles that make the same bits of its rows as the tiles of all rows; `narrow` rows of those
    are left for tiles that do not.
    """
    body = code.body("try_chunks", VOID, [POINTER, POINTER, POINTER, I64, I64, POINTER])
    builder, (frame, step, split, columns, narrow, best) = body.builder, body.args
    header, rows, threads = (
        body.pointer(frame, Frame.Header),
        body.number(split, Split.Rows),
        body.number(frame, Frame.Threads),
    )
    tiles = body.smaller(
        _divided_up(body, rows, builder.mul(threads, columns)),
        _divided_up(body, body.number(header, Header.ChunkRows), columns),
    )
    chunk = builder.mul(tiles, columns)
    chunks = _divided_up(body, rows, chunk)
    last = builder.sub(rows, builder.mul(builder.sub(chunks, i64(1)), chunk))
    others, own, word = body.words(1), body.words(1), i64(Width.SerialNs)
    longest = body.larger(body.call("tiles", step, chunk, word, others), body.call("tiles", step, last, word, own))
    rounds = builder.mul(_divided_up(body, chunks, threads), longest)
    time = builder.add(rounds, body.number(header, Header.StartNs))
    is_same = builder.icmp_signed("==", body.number(others), i64(0))
    is_same = builder.and_(is_same, builder.icmp_signed("==", body.number(own), narrow))
    with body.when(builder.and_(is_same, builder.icmp_signed("<", time, body.number(best)))):
        body.put(best, 0, time)
        body.put(split, Split.Workers, body.smaller(chunks, threads))
        body.put(split, Split.ChunkRows, chunk)
    builder.ret_void()


def _emit_try_sharing(code: WordCode) -> None:
    """Emit `try_sharing (frame, step, split, best)`: tiles that all threads do together, if that is sooner."""
    body = code.body("try_sharing", VOID, [POINTER] * 4)
    builder, (frame, step, split, best) = body.builder, body.args
    threads, unused = body.number(frame, Frame.Threads), body.words(1)
    own, rest = shares(body, step, body.number(split, Split.Rows), threads)
    time = builder.add(
        body.call("tiles", step, own, i64(Width.SerialNs), unused),
        body.call("tiles", step, rest, i64(Width.SharedNs), unused),
    )
    time = builder.add(time, body.number(body.pointer(frame, Frame.Header), Header.StartNs))
    is_sooner = builder.icmp_signed("<", time, body.number(best))
    with body.when(builder.and_(is_sooner, builder.icmp_signed(">", rest, i64(0)))):
        body.put(split, Split.Workers, threads)
        body.put(split, Split.ChunkRows, i64(0))
    builder.ret_void()


def shares(body: Body, step: ir.Value, rows: ir.Value, threads: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the rows that each thread does for itself, in whole tiles of the widest, and what is left for all."""
    builder, widest = body.builder, body.number(body.pointer(step, Step.WidthTable), Width.Columns)
    round_rows = builder.mul(widest, threads)
    share = builder.mul(builder.udiv(rows, round_rows), widest)
    return share, builder.sub(rows, builder.mul(share, threads))


def _emit_split_step(code: WordCode) -> None:
    """Emit `split_step (frame, step, split)`; a step that no thread can help with in time is done by one."""
    body = code.body("split_step", VOID, [POINTER] * 3)
    builder, (frame, step, split) = body.builder, body.args
    expression, rows, best, narrow = body.number(step, Step.Rows), *(body.words(1) for _ in range(3))
    body.put(rows, 0, i64(0))
    with body.when(builder.icmp_signed(">=", expression, i64(0)), likely=True):
        body.put(rows, 0, body.number(body.pointer(frame, Frame.Values), expression))
    count = body.number(rows)
    body.put(split, Split.Rows, count)
    body.put(split, Split.Workers, i64(1))
    is_serial = builder.icmp_signed("<=", count, body.number(step, Step.SerialRows))
    is_serial = builder.or_(is_serial, builder.icmp_signed("==", body.number(frame, Frame.Threads), i64(1)))
    with body.when(is_serial, likely=True):
        builder.ret_void()
    serial = body.call("tiles", step, count, i64(Width.SerialNs), narrow)
    start = body.number(body.pointer(frame, Frame.Header), Header.StartNs)
    with body.when(builder.icmp_signed("<=", serial, start), likely=True):
        builder.ret_void()
    body.put(best, 0, serial)
    table = body.pointer(step, Step.WidthTable)
    with body.each(body.number(step, Step.Widths)) as index:
        columns = body.number(table, builder.mul(index, i64(len(Width))))
        with body.when(builder.icmp_signed(">=", columns, body.number(step, Step.SameFrom))):
            body.call("try_chunks", frame, step, split, columns, body.number(narrow), best)
    with body.when(builder.icmp_signed("!=", body.number(step, Step.Shared), i64(0))):
        body.call("try_sharing", frame, step, split, best)
    builder.ret_void()


def _emit_split(code: WordCode) -> None:
    """Emit `split (frame) -> i64` over all steps."""
    body = code.body("split", I64, [POINTER])
    builder, (frame,) = body.builder, body.args
    header, most = body.pointer(frame, Frame.Header), body.words(1)
    body.put(most, 0, i64(1))
    with body.each(body.number(header, Header.Steps)) as index:
        step = body.at(body.pointer(header, Header.StepTable), builder.mul(index, i64(len(Step))))
        split = body.at(body.pointer(frame, Frame.Splits), builder.mul(index, i64(len(Split))))
        body.call("split_step", frame, step, split)
        body.put(most, 0, body.larger(body.number(most), body.number(split, Split.Workers)))
    builder.ret(body.number(most))
