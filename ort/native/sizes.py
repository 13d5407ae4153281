"""What a call of an operator works on: shapes checked, sizes evaluated, outputs made, temporaries placed."""

from enum import IntEnum
from typing import Final

from llvmlite import ir

from redpebble.lowering.llvm.builder import ALIGNMENT, I32, I64, POINTER, i64
from redpebble.ort.native.api import TENSOR_FLOAT, Slot
from redpebble.ort.native.code import NULL, Body, OrtCode
from redpebble.ort.native.tables import AREA_WORDS, TEMPORARY_WORDS, Header


class Frame(IntEnum):
    """Words of a call's frame, which lies on the stack of its thread."""

    Api = 0
    Context = 1
    Header = 2
    Symbols = 3
    Values = 4
    Buffers = 5
    """Inputs, outputs, temporaries."""
    Dims = 6
    """Room for one shape."""
    Cpus = 7
    ShapeOf = 8
    """The function that tells an input's shape at once, or null."""

    Company = 9
    """Where the node keeps how often in a row no thread came to help."""


FRAME_WORDS: Final = 10
UNSET: Final = -1


def emit_sizes(code: OrtCode) -> None:
    """Emit `read_inputs`, `evaluate` and `write_outputs (frame) -> status`, and `lay_out (frame, base) -> bytes`."""
    _emit_check_shape(code)
    _emit_copy_shape(code)
    _emit_read_input(code)
    _emit_walk_shapes(code, ("read_inputs", "read_input"), Header.Inputs, Header.InputShapes)
    _emit_evaluate(code)
    _emit_write_output(code)
    _emit_walk_shapes(code, ("write_outputs", "write_output"), Header.Outputs, Header.OutputShapes)
    _emit_lay_out(code)


def _emit_walk_shapes(code: OrtCode, names: tuple[str, str], count: Header, shapes: Header) -> None:
    """Emit a loop over all inputs or outputs: `one (frame, number, shape) -> status` for each."""
    walk, one = names
    body = code.body(walk, POINTER, [POINTER])
    (frame,) = body.args
    header = body.pointer(frame, Frame.Header)
    shape = body.words(1)
    body.put(shape, 0, body.pointer(header, shapes))
    with body.each(body.number(header, count)) as index:
        here = body.pointer(shape)
        body.pass_on(body.call(one, frame, index, here))
        body.put(shape, 0, body.at(here, body.builder.add(body.number(here), i64(1))))
    body.builder.ret(NULL)


def _emit_read_input(code: OrtCode) -> None:
    """Emit `read_input (frame, number, shape)`: its buffer is known, and so are the symbols in its shape."""
    body = code.body("read_input", POINTER, [POINTER, I64, POINTER])
    frame, index, shape = body.args
    api, shape_of = body.pointer(frame, Frame.Api), body.pointer(frame, Frame.ShapeOf)
    value, found = body.words(1), body.words(3)  # element type, dimensions, rank
    body.attempt(api, Slot.KernelContext_GetInput, body.pointer(frame, Frame.Context), index, value)
    body.fail_when(body.is_null(body.pointer(value)), api, "input ", index, " is missing")
    places = [body.at(found, word) for word in range(3)]
    with body.builder.if_else(body.is_null(shape_of), likely=False) as (older, newer):
        with older:
            body.pass_on(body.call("copy_shape", frame, body.pointer(value), found))
        with newer:
            body.pass_on(body.call_at(shape_of, POINTER, [body.pointer(value), *places]))
    body.pass_on(body.call("check_shape", frame, index, shape, found))
    buffer = body.at(body.pointer(frame, Frame.Buffers), index)
    body.builder.ret(body.ort(api, Slot.GetTensorMutableData, body.pointer(value), buffer))


def _emit_copy_shape(code: OrtCode) -> None:
    """Emit `copy_shape (frame, value, found)` for onnxruntime before `SHAPE_VERSION`, up to the longest rank."""
    body = code.body("copy_shape", POINTER, [POINTER, POINTER, POINTER])
    builder, (frame, value, found) = body.builder, body.args
    api, dims, info = body.pointer(frame, Frame.Api), body.pointer(frame, Frame.Dims), body.words(1)
    body.attempt(api, Slot.GetTensorTypeAndShape, value, info)
    body.attempt(api, Slot.GetTensorElementType, body.pointer(info), body.at(found, 0))
    body.attempt(api, Slot.GetDimensionsCount, body.pointer(info), body.at(found, 2))
    rank, most = body.number(found, 2), body.number(body.pointer(frame, Frame.Header), Header.MostRank)
    count = builder.select(builder.icmp_signed("<", rank, most), rank, most)
    body.put(found, 1, dims)
    status = body.ort(api, Slot.GetDimensions, body.pointer(info), dims, count)
    body.release(api, Slot.ReleaseTensorTypeAndShapeInfo, body.pointer(info))
    builder.ret(status)


def _emit_check_shape(code: OrtCode) -> None:
    """Emit `check_shape (frame, number, shape, found)`; the first size of a symbol is what the others must be."""
    body = code.body("check_shape", POINTER, [POINTER, I64, POINTER, POINTER])
    builder, (frame, index, shape, found) = body.builder, body.args
    api, symbols = body.pointer(frame, Frame.Api), body.pointer(frame, Frame.Symbols)
    element = builder.zext(builder.load(found, typ=I32), I64)
    is_other = builder.icmp_signed("!=", element, i64(TENSOR_FLOAT))
    expected = f", expected {TENSOR_FLOAT} (float)"
    body.fail_when(is_other, api, "input ", index, " has element type ", element, expected)
    dims, rank, wanted_rank = body.pointer(found, 1), body.number(found, 2), body.number(shape)
    is_other = builder.icmp_signed("!=", rank, wanted_rank)
    body.fail_when(is_other, api, "input ", index, " has rank ", rank, ", expected ", wanted_rank)
    with body.each(rank) as axis:
        size, wanted = body.number(dims, axis), body.number(shape, builder.add(axis, i64(1)))
        is_symbol = builder.icmp_signed("<", wanted, i64(0))
        symbol = builder.select(is_symbol, builder.sub(i64(-1), wanted), i64(0))
        known = body.number(symbols, symbol)
        is_unset = builder.icmp_signed("==", known, i64(UNSET))
        needed = builder.select(is_symbol, builder.select(is_unset, size, known), wanted)
        is_other = builder.icmp_signed("!=", size, needed)
        where = ("input ", index, " has size ", size, " along axis ", axis, ", expected ", needed)
        body.fail_when(is_other, api, *where)
        with body.when(is_symbol, likely=True):
            body.put(symbols, symbol, size)
    builder.ret(NULL)


def _emit_evaluate(code: OrtCode) -> None:
    """Emit `evaluate (frame)`: the values of all expressions, and that those are equal which must be."""
    body = code.body("evaluate", POINTER, [POINTER])
    builder, (frame,) = body.builder, body.args
    api, header, values = (body.pointer(frame, word) for word in (Frame.Api, Frame.Header, Frame.Values))
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
        _emit_quotient(body, api, terms, body.at(values, index))
    first = body.at(values, body.number(header, Header.FirstEqual))
    with body.each(body.number(header, Header.Equals)) as pair:
        here = body.at(first, builder.mul(pair, i64(2)))
        left, right = body.number(here, 0), body.number(here, 1)
        is_other = builder.icmp_signed("!=", left, right)
        body.fail_when(is_other, api, "sizes ", left, " and ", right, " of the inputs differ, expected the same")
    builder.ret(NULL)


def _emit_quotient(body: Body, api: ir.Value, terms: ir.Value, target: ir.Value) -> None:
    """Write numerator / denominator, 0 where a size by which is divided is 0."""
    builder = body.builder
    numerator, denominator = body.number(terms, 0), body.number(terms, 1)
    too_large = builder.icmp_signed("!=", body.number(terms, 2), i64(0))
    body.fail_when(too_large, api, "the sizes of the inputs are too large")
    body.put(target, 0, numerator)
    with body.when(builder.icmp_signed("!=", denominator, i64(1))):
        is_zero = builder.icmp_signed("==", denominator, i64(0))
        divisor = builder.select(is_zero, i64(1), denominator)
        rest = builder.select(is_zero, i64(0), builder.srem(numerator, divisor))
        has_rest = builder.icmp_signed("!=", rest, i64(0))
        body.fail_when(has_rest, api, "size ", numerator, " is no multiple of ", denominator)
        body.put(target, 0, builder.select(is_zero, i64(0), builder.sdiv(numerator, divisor)))


def _emit_write_output(code: OrtCode) -> None:
    """Emit `write_output (frame, number, shape)`: the output exists and its buffer is known."""
    body = code.body("write_output", POINTER, [POINTER, I64, POINTER])
    builder, (frame, index, shape) = body.builder, body.args
    api, dims, values = (body.pointer(frame, word) for word in (Frame.Api, Frame.Dims, Frame.Values))
    rank = body.number(shape)
    with body.each(rank) as axis:
        expression = body.number(shape, builder.add(axis, i64(1)))
        body.put(dims, axis, body.number(values, expression))
    value = body.words(1)
    context, header = body.pointer(frame, Frame.Context), body.pointer(frame, Frame.Header)
    number = body.number(body.pointer(header, Header.OutputPlaces), index)
    body.attempt(api, Slot.KernelContext_GetOutput, context, number, dims, rank, value)
    body.fail_when(body.is_null(body.pointer(value)), api, "output ", number, " is missing")
    place = builder.add(body.number(header, Header.Inputs), index)
    buffer = body.at(body.pointer(frame, Frame.Buffers), place)
    builder.ret(body.ort(api, Slot.GetTensorMutableData, body.pointer(value), buffer))


def _emit_lay_out(code: OrtCode) -> None:
    """Emit `lay_out (frame, base) -> bytes`: temporaries get their places behind `base`."""
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
    builder.ret(body.number(end))


def round_up(body: Body, size: ir.Value) -> ir.Value:
    """Return the next multiple of a cache line."""
    return body.builder.and_(body.builder.add(size, i64(ALIGNMENT - 1)), i64(-ALIGNMENT))
