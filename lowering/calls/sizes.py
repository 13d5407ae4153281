"""The sizes of a call: expressions evaluated, and temporaries given their places."""

from llvmlite import ir

from ..llvm.builder import ALIGNMENT, I64, POINTER, i64
from .table import AREA_WORDS, TEMPORARY_WORDS, Frame, Header, Problem
from .words import NULL, Body, WordCode


def emit_sizes(code: WordCode) -> None:
    """Emit `evaluate (frame) -> status`, and `lay_out (frame, base) -> bytes`."""
    _emit_evaluate(code)
    _emit_lay_out(code)


def _emit_evaluate(code: WordCode) -> None:
    """Emit `evaluate (frame)`: the values of all expressions, checked where they must be equal or large enough."""
    body = code.body("evaluate", POINTER, [POINTER])
    builder, (frame,) = body.builder, body.args
    header, values = body.pointer(frame, Frame.Header), body.pointer(frame, Frame.Values)
    symbol_count, table = body.number(header, Header.Symbols), body.pointer(header, Header.ExpressionTable)
    terms = body.words(3)  # numerator, denominator, whether a product was too large
    stride = builder.add(symbol_count, i64(2))
    with body.each(body.number(header, Header.Expressions)) as index:
        row = body.at(table, builder.mul(index, stride))
        body.put(terms, 0, body.number(row, 0))
        body.put(terms, 1, body.number(row, 1))
        body.put(terms, 2, i64(0))
        with body.each(symbol_count) as symbol:
            power = body.number(row, builder.add(symbol, i64(2)))
            size = body.number(body.pointer(frame, Frame.Symbols), symbol)
            is_below = builder.icmp_signed("<", power, i64(0))
            term = builder.select(is_below, i64(1), i64(0))
            with body.each(builder.select(is_below, builder.neg(power), power)):
                product = builder.smul_with_overflow(body.number(terms, term), size)
                body.put(terms, term, builder.extract_value(product, 0))
                overflow = builder.zext(builder.extract_value(product, 1), I64)
                body.put(terms, 2, builder.or_(body.number(terms, 2), overflow))
        _emit_quotient(body, frame, terms, body.at(values, index))
    first = body.at(values, body.number(header, Header.FirstEqual))
    with body.each(body.number(header, Header.Equals)) as pair:
        here = body.at(first, builder.mul(pair, i64(4)))
        left, second, plus, other = (body.number(here, index) for index in range(4))
        right = builder.add(second, plus)
        differs, unlike_other = (builder.icmp_signed("!=", left, accepted) for accepted in (right, other))
        with body.when(builder.and_(differs, unlike_other)):
            builder.ret(body.call("report", frame, i64(Problem.Unequal), left, right))
    behind = body.at(first, builder.mul(body.number(header, Header.Equals), i64(4)))
    with body.each(body.number(header, Header.Leasts)) as pair:
        size, least = (body.number(body.at(behind, builder.mul(pair, i64(2))), index) for index in range(2))
        with body.when(builder.icmp_signed("<", size, least)):
            builder.ret(body.call("report", frame, i64(Problem.TooSmall), size, least))
    builder.ret(NULL)


def _emit_quotient(body: Body, frame: ir.Value, terms: ir.Value, target: ir.Value) -> None:
    """Write numerator / denominator, 0 where a size by which is divided is 0."""
    builder = body.builder
    numerator, denominator = body.number(terms, 0), body.number(terms, 1)
    with body.when(builder.icmp_signed("!=", body.number(terms, 2), i64(0))):
        builder.ret(body.call("report", frame, i64(Problem.TooLarge), numerator, denominator))
    body.put(target, 0, numerator)
    with body.when(builder.icmp_signed("!=", denominator, i64(1))):
        is_zero = builder.icmp_signed("==", denominator, i64(0))
        divisor = builder.select(is_zero, i64(1), denominator)
        rest = builder.select(is_zero, i64(0), builder.srem(numerator, divisor))
        with body.when(builder.icmp_signed("!=", rest, i64(0))):
            builder.ret(body.call("report", frame, i64(Problem.NoMultiple), numerator, denominator))
        body.put(target, 0, builder.select(is_zero, i64(0), builder.sdiv(numerator, divisor)))


def _emit_lay_out(code: WordCode) -> None:
    """Emit `lay_out (frame, base) -> bytes`: temporaries get their places behind `base`, scratch memory its behind."""
    body = code.body("lay_out", I64, [POINTER, POINTER])
    builder, (frame, base) = body.builder, body.args
    header, values, buffers = (body.pointer(frame, word) for word in (Frame.Header, Frame.Values, Frame.Buffers))
    areas, area_count = body.pointer(header, Header.AreaTable), body.number(header, Header.Areas)
    starts, end = body.fresh_words(area_count), body.words(1)
    body.put(end, 0, i64(0))
    with body.each(area_count) as index:
        row = body.at(areas, builder.mul(index, i64(AREA_WORDS)))
        size = builder.mul(body.number(values, body.number(row, 0)), body.number(row, 1))
        body.put(starts, index, body.number(end))
        body.put(end, 0, round_up(body, builder.add(body.number(end), size)))
    first = builder.add(body.number(header, Header.Inputs), body.number(header, Header.Outputs))
    with body.each(body.number(header, Header.Temporaries)) as index:
        row = body.at(body.pointer(header, Header.TemporaryTable), builder.mul(index, i64(TEMPORARY_WORDS)))
        area = body.number(row, 0)
        units = body.number(values, body.number(body.at(areas, builder.mul(area, i64(AREA_WORDS))), 0))
        offset = builder.add(body.number(starts, area), builder.mul(body.number(row, 1), units))
        body.put(buffers, builder.add(first, index), body.behind(base, offset))
    body.put(frame, Frame.Scratch, body.behind(base, body.number(end)))
    builder.ret(body.number(end))


def round_up(body: Body, size: ir.Value) -> ir.Value:
    """Return the next multiple of a cache line."""
    return body.builder.and_(body.builder.add(size, i64(ALIGNMENT - 1)), i64(-ALIGNMENT))
