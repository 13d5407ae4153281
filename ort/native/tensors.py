"""The tensors of a call of an operator: the shapes of inputs are read and checked, outputs are made."""

from enum import IntEnum
from typing import Final

from ...lowering.calls.network_table import ELEMENT_TYPES
from ...lowering.calls.table import Frame, Header
from ...lowering.calls.words import NULL
from ...lowering.llvm.builder import I32, I64, POINTER, i64
from .api import Slot
from .code import OrtCode


class OrtFrame(IntEnum):
    """Words of a call inside onnxruntime, behind those of `Frame`; it lies on the stack of its thread."""

    Api = len(Frame)
    Context = len(Frame) + 1
    Dims = len(Frame) + 2
    """Room for one shape."""
    ShapeOf = len(Frame) + 3
    """The function that tells an input's shape at once, or null."""
    SoloCalls = len(Frame) + 4
    """Address of the number of teams in a row that no other thread has joined."""


FRAME_WORDS: Final = len(Frame) + len(OrtFrame)
UNSET: Final = -1


def emit_tensors(code: OrtCode) -> None:
    """Emit `read_inputs (frame) -> status` and `write_outputs (frame) -> status`."""
    _emit_check_shape(code)
    _emit_copy_shape(code)
    _emit_read_input(code)
    _emit_each(code, "read_input", Header.Inputs, Header.InputShapes)
    _emit_write_output(code)
    _emit_each(code, "write_output", Header.Outputs, Header.OutputShapes)


def _emit_each(code: OrtCode, one: str, count: Header, shapes: Header) -> None:
    """Emit a loop over all inputs or outputs, such as `read_inputs (frame)`: `one (frame, number, shape)` for each."""
    body = code.body(f"{one}s", POINTER, [POINTER])
    (frame,) = body.args
    header = body.pointer(frame, Frame.Header)
    with body.each_shape(body.number(header, count), body.pointer(header, shapes)) as (index, shape):
        body.pass_on(body.call(one, frame, index, shape))
    body.builder.ret(NULL)


def _emit_read_input(code: OrtCode) -> None:
    """Emit `read_input (frame, number, shape)`: its buffer is known, and so are the symbols in its shape."""
    body = code.body("read_input", POINTER, [POINTER, I64, POINTER])
    frame, index, shape = body.args
    api, shape_of = body.pointer(frame, OrtFrame.Api), body.pointer(frame, OrtFrame.ShapeOf)
    number = body.number(body.pointer(body.pointer(frame, Frame.Header), Header.InputNumbers), index)
    value, found = body.words(1), body.words(3)  # element type, dimensions, rank
    body.attempt(api, Slot.KernelContext_GetInput, body.pointer(frame, OrtFrame.Context), number, value)
    body.fail_when(body.is_null(body.pointer(value)), api, "input ", number, " is missing")
    found_words = [body.at(found, word) for word in range(3)]
    with body.builder.if_else(body.is_null(shape_of), likely=False) as (older, newer):
        with older:
            body.pass_on(body.call("copy_shape", frame, body.pointer(value), found))
        with newer:
            body.pass_on(body.call_at(shape_of, POINTER, [body.pointer(value), *found_words]))
    body.pass_on(body.call("check_shape", frame, index, number, shape, found))
    buffer = body.at(body.pointer(frame, Frame.Buffers), index)
    body.builder.ret(body.ort(api, Slot.GetTensorMutableData, body.pointer(value), buffer))


def _emit_copy_shape(code: OrtCode) -> None:
    """Emit `copy_shape (frame, value, found)` for onnxruntime before `SHAPE_VERSION`, up to the longest rank."""
    body = code.body("copy_shape", POINTER, [POINTER, POINTER, POINTER])
    builder, (frame, value, found) = body.builder, body.args
    api, dims, info = body.pointer(frame, OrtFrame.Api), body.pointer(frame, OrtFrame.Dims), body.words(1)
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
    """Emit `check_shape (frame, position, number, shape, found)`: of the input at a position, the node's by its number.

    The first size of a symbol is what the others must be.
    """
    body = code.body("check_shape", POINTER, [POINTER, I64, I64, POINTER, POINTER])
    builder, (frame, position, index, shape, found) = body.builder, body.args
    api, symbols = body.pointer(frame, OrtFrame.Api), body.pointer(frame, Frame.Symbols)
    element = builder.zext(builder.load(found, typ=I32), I64)
    types = body.pointer(body.pointer(frame, Frame.Header), Header.InputTypes)
    expected = body.number(types, position)
    is_other = builder.icmp_signed("!=", element, expected)
    for dtype, name in (("float32", "float"), ("uint8", "uint8"), ("int8", "int8"), ("int64", "int64")):
        is_this = builder.icmp_signed("==", expected, i64(ELEMENT_TYPES[dtype]))
        words = f", expected {ELEMENT_TYPES[dtype]} ({name})"
        body.fail_when(builder.and_(is_other, is_this), api, "input ", index, " has element type ", element, words)
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


def _emit_write_output(code: OrtCode) -> None:
    """Emit `write_output (frame, number, shape)`: the output exists and its buffer is known."""
    body = code.body("write_output", POINTER, [POINTER, I64, POINTER])
    builder, (frame, index, shape) = body.builder, body.args
    api, dims, values = (body.pointer(frame, word) for word in (OrtFrame.Api, OrtFrame.Dims, Frame.Values))
    rank = body.number(shape)
    with body.each(rank) as axis:
        expression = body.number(shape, builder.add(axis, i64(1)))
        body.put(dims, axis, body.number(values, expression))
    value = body.words(1)
    context, header = body.pointer(frame, OrtFrame.Context), body.pointer(frame, Frame.Header)
    number = body.number(body.pointer(header, Header.OutputNumbers), index)
    body.attempt(api, Slot.KernelContext_GetOutput, context, number, dims, rank, value)
    body.fail_when(body.is_null(body.pointer(value)), api, "output ", number, " is missing")
    input_number = builder.add(body.number(header, Header.Inputs), index)
    buffer = body.at(body.pointer(frame, Frame.Buffers), input_number)
    builder.ret(body.ort(api, Slot.GetTensorMutableData, body.pointer(value), buffer))
