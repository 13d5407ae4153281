"""Shape inference for operators whose networks lie in the library: onnxruntime asks before it makes any node."""

from typing import Final

from llvmlite import ir

from ...lowering.calls.table import Header
from ...lowering.calls.words import Struct, Words, address, number, rarely
from ...lowering.llvm.flow import loop, select, when
from ...lowering.llvm.values import I32, Bytes, Number
from .api import ATTRIBUTE_STRING, CustomOp, Slot
from .code import Api, OrtCode
from .node import DIGEST_WORDS, operator_of
from .tables import DIGEST_BYTES

UNKNOWN: Final = -1


class Symbol(Struct):
    """A size of the inputs as far as it is known: a number, or -1 and a name."""

    size = number()
    name = address(Words)


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
    """Emit `learn_input (api, context, symbols, number, shape)`: symbols get a size, or -1 and a name."""

    @code.function()
    def learn_input(api: Api, context: Words, symbols: Symbol, index: Number, shape: Words) -> Words:
        info, found = code.words(), code.words()
        rank = shape[0]
        dims, names = code.fresh_words(rank + 1), code.fresh_words(rank + 1)
        api.attempt(Slot.ShapeInferContext_GetInputTypeShape, context, index, info)
        api.attempt(Slot.GetDimensionsCount, info.to(), found)
        with rarely(found[0] != rank):
            code.leave(code.null)  # unknown here, or wrong, which the call will say
        api.attempt(Slot.GetDimensions, info.to(), dims, rank)
        api.attempt(Slot.GetSymbolicDimensions, info.to(), names, rank)
        with loop(rank) as axis:
            wanted = shape[axis + 1]
            with rarely(wanted < 0):
                symbol = symbols.row(-1 - wanted)
                # a number says more than a name, and the first name is as good as any
                is_number = dims[axis] >= 0
                with rarely(is_number | symbol.name.is_null()):
                    symbol.size = dims[axis]
                    symbol.name = names.to(axis)
        return code.null


def _emit_tell_size(code: OrtCode) -> None:
    """Emit `tell_size (header, symbols, expression, size, name)`: a number, one size of an input, or -1 and ""."""

    @code.function()
    def tell_size(header: Header, symbols: Symbol, expression: Number, size: Words, name: Words) -> None:
        count = header.symbols
        stride = count + 2
        row = header.expression_table.at(expression * stride)
        size[0] = UNKNOWN
        name[0] = code.text("")
        # the powers of all symbols: none for a number, one for a size
        powers, last = code.words(), code.words()
        powers[0] = 0
        last[0] = 0
        with loop(count) as symbol:
            power = row[symbol + 2]
            powers[0] += power * power
            last[0] = select(power != 0, symbol, last[0])
        with rarely(powers[0] == 0):
            size[0] = row[0].quotient(row[1])
            code.leave()
        power = row[last[0] + 2]
        is_plain = powers[0] == 1
        for one in (row[0], row[1], power):
            is_plain &= one == 1
        with rarely(is_plain):
            known = symbols.row(last[0])
            size[0] = known.size
            with rarely(~known.name.is_null()):
                name[0] = known.name


def _emit_tell_output(code: OrtCode) -> None:
    """Emit `tell_output (api, context, header, symbols, number, shape)`."""

    @code.function()
    def tell_output(api: Api, context: Words, header: Header, symbols: Symbol, index: Number, shape: Words) -> Words:
        rank = shape[0]
        dims, names = code.fresh_words(rank + 1), code.fresh_words(rank + 1)
        with loop(rank) as axis:
            expression = shape[axis + 1]
            code.call("tell_size", header, symbols, expression, dims.at(axis), names.at(axis))
            is_number = dims[axis] >= 0
            is_named = names.to(axis).cast(Bytes).narrow(0) != 0
            with rarely(~(is_number | is_named)):
                code.leave(code.null)
        info = code.words()
        api.attempt(Slot.CreateTensorTypeAndShapeInfo, info)
        kind = header.output_types[index]
        status = code.address("describe", api, info.to(), kind, dims, names, rank)
        with when(status.is_null(), likely=True):
            told = api.ask(Slot.ShapeInferContext_SetOutputTypeShape, context, index, info.to())
            api.release(Slot.ReleaseTensorTypeAndShapeInfo, info.to())
            code.leave(told)
        api.release(Slot.ReleaseTensorTypeAndShapeInfo, info.to())
        return status


def emit_describe(code: OrtCode) -> None:
    """Emit `describe (api, info, kind, dims, names, rank) -> status`."""

    @code.function()
    def describe(api: Api, info: Words, kind: Number, dims: Words, names: Words, rank: Number) -> Words:
        api.attempt(Slot.SetTensorElementType, info, kind.narrow(I32))
        api.attempt(Slot.SetDimensions, info, dims, rank)
        return api.ask(Slot.SetSymbolicDimensions, info, names, rank)


def _emit_infer(code: OrtCode) -> None:
    @code.function()
    def infer_shapes(op: Words, context: Words) -> Words:
        api = op.to(CustomOp.Api).cast(Api)
        attribute, found, digest = code.words(), code.words(), code.words(DIGEST_WORDS + 1)
        with rarely(operator_of(code, op).variant_count == 0):
            code.leave(code.null)  # compiled in this process, later: the model says what shapes there are
        # the network of the node's digest
        api.attempt(Slot.ShapeInferContext_GetAttribute, context, code.text("digest"), attribute)
        arguments = (ir.Constant(I32, ATTRIBUTE_STRING), digest, DIGEST_BYTES + 1, found)
        api.attempt(Slot.ReadOpAttr, attribute.to(), *arguments)
        header = code.address("find", op, digest, found).cast(Header)
        with rarely(header.is_null()):
            code.leave(code.null)  # making the node will say so
        # what the inputs tell of sizes, then the shapes of outputs
        count = header.symbols
        symbols = code.fresh_words((count + 1) * Symbol.word_count).cast(Symbol)
        with loop(count) as index:
            symbol = symbols.row(index)
            symbol.size = UNKNOWN
            symbol.name = code.null
        with code.each_shape(header.inputs, header.input_shapes) as (index, shape):
            code.address("learn_input", api, context, symbols, index, shape).pass_on()
        with code.each_shape(header.outputs, header.output_shapes) as (index, shape):
            code.address("tell_output", api, context, header, symbols, index, shape).pass_on()
        return code.null
