"""Shape inference for operators whose networks lie in the library: onnxruntime asks before it makes any node."""

from typing import Final

from llvmlite import ir

from ...lowering.calls.table import Header
from ...lowering.calls.words import NULL
from ...lowering.llvm.builder import BYTE, I32, I64, POINTER, VOID, i64
from .api import ATTRIBUTE_STRING, CustomOp, Slot
from .code import OrtCode
from .node import DIGEST_WORDS, operator_row
from .tables import DIGEST_BYTES

UNKNOWN: Final = -1


def emit_shapes(code: OrtCode) -> None:
    """Emit `infer_shapes (op, context) -> status`, which is InferOutputShapeFn.

    A size is known where it is a number, or one size of an input. An output with any other size gets no shape: it
    keeps what the model says of it, since onnxruntime computes with -1 as if it were a size.
    """
    _emit_learn_input(code)
    _emit_tell_size(code)
    _emit_tell_output(code)
    _emit_infer(code)


def _emit_learn_input(code: OrtCode) -> None:
    """Emit `learn_input (api, context, symbols, number, shape)`: symbols [2 n] get a size, or -1 and a name."""
    body = code.body("learn_input", POINTER, [POINTER, POINTER, POINTER, I64, POINTER])
    builder, (api, context, symbols, index, shape) = body.builder, body.args
    info, found = body.words(1), body.words(1)
    rank = body.number(shape)
    dims, names = body.fresh_words(builder.add(rank, i64(1))), body.fresh_words(builder.add(rank, i64(1)))
    body.attempt(api, Slot.ShapeInferContext_GetInputTypeShape, context, index, info)
    body.attempt(api, Slot.GetDimensionsCount, body.pointer(info), found)
    with body.when(builder.icmp_signed("!=", body.number(found), rank)):
        builder.ret(NULL)  # unknown here, or wrong, which the call will say
    body.attempt(api, Slot.GetDimensions, body.pointer(info), dims, rank)
    body.attempt(api, Slot.GetSymbolicDimensions, body.pointer(info), names, rank)
    with body.each(rank) as axis:
        wanted = body.number(shape, builder.add(axis, i64(1)))
        with body.when(builder.icmp_signed("<", wanted, i64(0))):
            entry = body.at(symbols, builder.mul(builder.sub(i64(-1), wanted), i64(2)))
            # a number says more than a name, and the first name is as good as any
            is_number = builder.icmp_signed(">=", body.number(dims, axis), i64(0))
            with body.when(builder.or_(is_number, body.is_null(body.pointer(entry, 1)))):
                body.put(entry, 0, body.number(dims, axis))
                body.put(entry, 1, body.pointer(names, axis))
    builder.ret(NULL)


def _emit_tell_size(code: OrtCode) -> None:
    """Emit `tell_size (header, symbols, expression, size, name)`: a number, one size of an input, or -1 and ""."""
    body = code.body("tell_size", VOID, [POINTER, POINTER, I64, POINTER, POINTER])
    builder, (header, symbols, expression, size, name) = body.builder, body.args
    count = body.number(header, Header.Symbols)
    stride = builder.add(count, i64(2))
    row = body.at(body.pointer(header, Header.ExpressionTable), builder.mul(expression, stride))
    body.put(size, 0, i64(UNKNOWN))
    body.put(name, 0, code.text(""))
    powers, last = body.words(1), body.words(1)
    body.put(powers, 0, i64(0))
    body.put(last, 0, i64(0))
    with body.each(count) as symbol:
        power = body.number(row, builder.add(symbol, i64(2)))
        body.put(powers, 0, builder.add(body.number(powers), builder.mul(power, power)))
        is_used = builder.icmp_signed("!=", power, i64(0))
        body.put(last, 0, builder.select(is_used, symbol, body.number(last)))
    with body.when(builder.icmp_signed("==", body.number(powers), i64(0))):
        body.put(size, 0, builder.sdiv(body.number(row, 0), body.number(row, 1)))
        builder.ret_void()
    power = body.number(row, builder.add(body.number(last), i64(2)))
    is_plain: ir.Value = builder.icmp_signed("==", body.number(powers), i64(1))
    for one in (body.number(row, 0), body.number(row, 1), power):
        is_plain = builder.and_(is_plain, builder.icmp_signed("==", one, i64(1)))
    with body.when(is_plain):
        entry = body.at(symbols, builder.mul(body.number(last), i64(2)))
        body.put(size, 0, body.number(entry, 0))
        with body.when(builder.not_(body.is_null(body.pointer(entry, 1)))):
            body.put(name, 0, body.pointer(entry, 1))
    builder.ret_void()


def _emit_tell_output(code: OrtCode) -> None:
    """Emit `tell_output (api, context, header, symbols, number, shape)`."""
    body = code.body("tell_output", POINTER, [POINTER, POINTER, POINTER, POINTER, I64, POINTER])
    builder, (api, context, header, symbols, index, shape) = body.builder, body.args
    rank = body.number(shape)
    dims, names = body.fresh_words(builder.add(rank, i64(1))), body.fresh_words(builder.add(rank, i64(1)))
    with body.each(rank) as axis:
        expression = body.number(shape, builder.add(axis, i64(1)))
        body.call("tell_size", header, symbols, expression, body.at(dims, axis), body.at(names, axis))
        is_number = builder.icmp_signed(">=", body.number(dims, axis), i64(0))
        letter = builder.load(body.pointer(names, axis), typ=BYTE)
        is_named = builder.icmp_unsigned("!=", letter, ir.Constant(BYTE, 0))
        with body.when(builder.not_(builder.or_(is_number, is_named))):
            builder.ret(NULL)
    info = body.words(1)
    body.attempt(api, Slot.CreateTensorTypeAndShapeInfo, info)
    kind = body.number(body.pointer(header, Header.OutputTypes), index)
    status = body.call("describe", api, body.pointer(info), kind, dims, names, rank)
    with body.when(body.is_null(status), likely=True):
        told = body.ort(api, Slot.ShapeInferContext_SetOutputTypeShape, context, index, body.pointer(info))
        body.release(api, Slot.ReleaseTensorTypeAndShapeInfo, body.pointer(info))
        builder.ret(told)
    body.release(api, Slot.ReleaseTensorTypeAndShapeInfo, body.pointer(info))
    builder.ret(status)


def emit_describe(code: OrtCode) -> None:
    """Emit `describe (api, info, kind, dims, names, rank) -> status`."""
    body = code.body("describe", POINTER, [POINTER, POINTER, I64, POINTER, POINTER, I64])
    api, info, kind, dims, names, rank = body.args
    body.attempt(api, Slot.SetTensorElementType, info, body.builder.trunc(kind, I32))
    body.attempt(api, Slot.SetDimensions, info, dims, rank)
    body.builder.ret(body.ort(api, Slot.SetSymbolicDimensions, info, names, rank))


def _emit_infer(code: OrtCode) -> None:
    body = code.body("infer_shapes", POINTER, [POINTER, POINTER])
    builder, (op, context) = body.builder, body.args
    api = body.pointer(op, CustomOp.Api)
    attribute, found, digest = body.words(1), body.words(1), body.words(DIGEST_WORDS + 1)
    with body.when(builder.icmp_signed("==", body.number(operator_row(body, op), 1), i64(0))):
        builder.ret(NULL)  # compiled in this process, later: the model says what shapes there are
    body.attempt(api, Slot.ShapeInferContext_GetAttribute, context, code.text("digest"), attribute)
    arguments = (ir.Constant(I32, ATTRIBUTE_STRING), digest, i64(DIGEST_BYTES + 1), found)
    body.attempt(api, Slot.ReadOpAttr, body.pointer(attribute), *arguments)
    header = body.call("find", op, digest, found)
    with body.when(body.is_null(header)):
        builder.ret(NULL)  # making the node will say so
    count = body.number(header, Header.Symbols)
    symbols = body.fresh_words(builder.mul(builder.add(count, i64(1)), i64(2)))
    with body.each(count) as index:
        entry = body.at(symbols, builder.mul(index, i64(2)))
        body.put(entry, 0, i64(UNKNOWN))
        body.put(entry, 1, NULL)
    inputs = (body.number(header, Header.Inputs), body.pointer(header, Header.InputShapes))
    with body.each_shape(*inputs) as (index, shape):
        body.pass_on(body.call("learn_input", api, context, symbols, index, shape))
    outputs = (body.number(header, Header.Outputs), body.pointer(header, Header.OutputShapes))
    with body.each_shape(*outputs) as (index, shape):
        body.pass_on(body.call("tell_output", api, context, header, symbols, index, shape))
    builder.ret(NULL)
