"""The tensors of a call of an operator: the shapes of inputs are read and checked, outputs are made."""

from typing import Final

from ...lowering.calls.network_table import ELEMENT_TYPES
from ...lowering.calls.table import Frame
from ...lowering.calls.words import Words, address
from ...lowering.llvm.flow import branch, loop, select, when
from ...lowering.llvm.values import Ints, Number
from .api import Slot
from .code import Api, OrtCode


class OrtFrame(Frame):
    """Words of a call inside onnxruntime; it lies on the stack of its thread."""

    api = address(Api)
    context = address(Words)
    dims = address(Words)
    """Room for one shape."""
    shape_of = address(Words)
    """The function that tells an input's shape at once, or null."""


UNSET: Final = -1


def emit_tensors(code: OrtCode) -> None:
    """Emit `read_inputs (frame) -> status` and `write_outputs (frame) -> status`."""
    _emit_check_shape(code)
    _emit_copy_shape(code)
    _emit_read_input(code)

    @code.function()
    def read_inputs(frame: OrtFrame) -> Words:
        header = frame.header
        with code.each_shape(header.inputs, header.input_shapes) as (index, shape):
            code.address("read_input", frame, index, shape).pass_on()
        return code.null

    _emit_write_output(code)

    @code.function()
    def write_outputs(frame: OrtFrame) -> Words:
        header = frame.header
        with code.each_shape(header.outputs, header.output_shapes) as (index, shape):
            code.address("write_output", frame, index, shape).pass_on()
        return code.null


def _emit_read_input(code: OrtCode) -> None:
    """Emit `read_input (frame, number, shape)`: its buffer is known, and so are the symbols in its shape."""

    @code.function()
    def read_input(frame: OrtFrame, index: Number, shape: Words) -> Words:
        api, shape_of = frame.api, frame.shape_of
        number = frame.header.input_numbers[index]
        value, found = code.words(), code.words(3)  # element type, dimensions, rank
        api.attempt(Slot.KernelContext_GetInput, frame.context, number, value)
        code.fail_when(value.to().is_null(), api, "input ", number, " is missing")
        found_words = [found.at(word) for word in range(3)]
        branch(
            shape_of.is_null(),
            lambda: code.address("copy_shape", frame, value.to(), found).pass_on(),
            lambda: shape_of.address_of(value.to(), *found_words).pass_on(),
            likely=False,
        )
        code.address("check_shape", frame, index, number, shape, found).pass_on()
        buffer = frame.buffers.at(index)
        return api.ask(Slot.GetTensorMutableData, value.to(), buffer)


def _emit_copy_shape(code: OrtCode) -> None:
    """Emit `copy_shape (frame, value, found)` for onnxruntime before `SHAPE_VERSION`, up to the longest rank."""

    @code.function()
    def copy_shape(frame: OrtFrame, value: Words, found: Words) -> Words:
        api, dims, info = frame.api, frame.dims, code.words()
        api.attempt(Slot.GetTensorTypeAndShape, value, info)
        api.attempt(Slot.GetTensorElementType, info.to(), found.at(0))
        api.attempt(Slot.GetDimensionsCount, info.to(), found.at(2))
        rank, most = found[2], frame.header.most_rank
        count = rank.smaller(most)
        found[1] = dims
        status = api.ask(Slot.GetDimensions, info.to(), dims, count)
        api.release(Slot.ReleaseTensorTypeAndShapeInfo, info.to())
        return status


def _emit_check_shape(code: OrtCode) -> None:
    """Emit `check_shape (frame, position, number, shape, found)`: of the input at a position, the node's by its number.

    The first size of a symbol is what the others must be.
    """

    @code.function()
    def check_shape(frame: OrtFrame, position: Number, index: Number, shape: Words, found: Words) -> Words:
        api, symbols = frame.api, frame.symbols
        element = found.cast(Ints)[0]
        expected = frame.header.input_types[position]
        is_other = element != expected
        for dtype, name in (("float32", "float"), ("uint8", "uint8"), ("int8", "int8"), ("int64", "int64")):
            is_this = expected == ELEMENT_TYPES[dtype]
            words = f": expected element type {ELEMENT_TYPES[dtype]} ({name}), got "
            code.fail_when(is_other & is_this, api, "input ", index, words, element)
        dims, rank, wanted_rank = found.to(1), found[2], shape[0]
        code.fail_when(rank != wanted_rank, api, "input ", index, ": expected rank ", wanted_rank, ", got ", rank)
        with loop(rank) as axis:
            size, wanted = dims[axis], shape[axis + 1]
            # what is negative is -1 - the number of a symbol
            is_symbol = wanted < 0
            symbol = select(is_symbol, -1 - wanted, 0)
            known = symbols[symbol]
            is_unset = known == UNSET
            needed = select(is_symbol, select(is_unset, size, known), wanted)
            where = ("input ", index, ": expected size ", needed, " along axis ", axis, ", got ", size)
            code.fail_when(size != needed, api, *where)
            with when(is_symbol, likely=True):
                symbols[symbol] = size
        return code.null


def _emit_write_output(code: OrtCode) -> None:
    """Emit `write_output (frame, number, shape)`: the output exists and its buffer is known."""

    @code.function()
    def write_output(frame: OrtFrame, index: Number, shape: Words) -> Words:
        api, dims, values = frame.api, frame.dims, frame.values
        rank = shape[0]
        with loop(rank) as axis:
            dims[axis] = values[shape[axis + 1]]
        value = code.words()
        context, header = frame.context, frame.header
        number = header.output_numbers[index]
        api.attempt(Slot.KernelContext_GetOutput, context, number, dims, rank, value)
        code.fail_when(value.to().is_null(), api, "output ", number, " is missing")
        buffer = frame.buffers.at(header.inputs + index)
        return api.ask(Slot.GetTensorMutableData, value.to(), buffer)
