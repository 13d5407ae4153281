"""A call from Python without Python's steps: a builtin function whose argument is the dictionary of inputs.

It takes what most calls are: exact arrays of float32, contiguous, of the shapes that the call was prepared for. For
all else it returns None, and the caller goes the long way, which knows what to say.
"""

from enum import IntEnum
from typing import Final

from llvmlite import ir

from ..llvm.builder import I32, I64, POINTER, VOID, i64
from .words import NULL, Body, WordCode

OBJECT_BYTES: Final = 16
"""Bytes of the head of each object: references and type."""


class ObjectWord(IntEnum):
    """Words of any object."""

    Type = 1


class ArrayWord(IntEnum):
    """Words of numpy's arrays, as its macros read them in every extension."""

    Data = 2
    Rank = 3
    """An int."""
    Shape = 4
    Dtype = 7
    Flags = 8
    """An int."""


CONTIGUOUS: Final = 1
"""The flag of arrays that are contiguous, their last axis first."""


class Entry(IntEnum):
    """Words of a prepared call; `Input` and `Output` follow for each of both."""

    Busy = 0
    """1 while it is under way: another thread goes the long way."""
    Frame = 1
    Run = 2
    """`void (frame)`."""
    Addresses = 3
    """The address that the frame has of its inputs and outputs."""
    Inputs = 4
    Outputs = 5
    NoResult = 6
    """The object None."""
    DictType = 7
    ArrayType = 8
    Float32 = 9
    """The object of the data type."""
    Empty = 10
    """The function that makes an array."""


class Input(IntEnum):
    """Words of an input."""

    Name = 0
    Rank = 1
    Shape = 2
    """Address of its sizes."""
    Held = 3
    """The array of the call under way."""


OUTPUT_WORDS: Final = 1
"""Words of an output: the arguments of `Empty`."""

CALL_FROM_PYTHON: Final = "call_from_python"


def emit_python_call(code: WordCode) -> None:
    """Emit `call_from_python (entry, inputs) -> list of outputs, None, or null after an error`.

    The first argument is an array of the words of `Entry`.
    """
    for name, returns, arguments in (
        ("PyDict_Size", I64, [POINTER]),
        ("PyDict_GetItem", POINTER, [POINTER, POINTER]),
        ("Py_IncRef", VOID, [POINTER]),
        ("Py_DecRef", VOID, [POINTER]),
        ("PyObject_Call", POINTER, [POINTER, POINTER, POINTER]),
        ("PyList_New", POINTER, [I64]),
        ("PyList_SetItem", I32, [POINTER, I64, POINTER]),
        ("PyEval_SaveThread", POINTER, []),
        ("PyEval_RestoreThread", VOID, [POINTER]),
    ):
        code.declare(name, returns, arguments)
    _emit_release(code)
    _emit_take(code)
    _emit_outputs(code)
    _emit_call(code)


def _input(body: Body, entry: ir.Value, number: ir.Value) -> ir.Value:
    """Return the address of the words of an input."""
    offset = body.builder.mul(number, i64(len(Input)))
    return body.at(entry, body.builder.add(offset, i64(len(Entry))))


def _emit_release(code: WordCode) -> None:
    """Emit `release (entry, count)`: end the call, which holds the first `count` inputs."""
    body = code.body("release", VOID, [POINTER, I64])
    entry, count = body.args
    with body.each(count) as number:
        body.call("Py_DecRef", body.pointer(_input(body, entry, number), Input.Held))
    body.swap(entry, Entry.Busy, i64(0))
    body.builder.ret_void()


def _emit_take(code: WordCode) -> None:
    """Emit `take (entry, input, array) -> 1 where the array is as the call was prepared for`; it is held from then."""
    body = code.body("take", I64, [POINTER, POINTER, POINTER])
    builder, (entry, given, array) = body.builder, body.args
    with body.when(body.is_null(array)):
        builder.ret(i64(0))
    for word, expected in ((ObjectWord.Type, Entry.ArrayType), (ArrayWord.Dtype, Entry.Float32)):
        with body.when(builder.icmp_unsigned("!=", body.number(array, word), body.number(entry, expected))):
            builder.ret(i64(0))
    flags = builder.load(body.at(array, ArrayWord.Flags), typ=I32)
    is_other = builder.icmp_unsigned("==", builder.and_(flags, ir.Constant(I32, CONTIGUOUS)), ir.Constant(I32, 0))
    rank = body.number(given, Input.Rank)
    own_rank = builder.sext(builder.load(body.at(array, ArrayWord.Rank), typ=I32), I64)
    with body.when(builder.or_(is_other, builder.icmp_signed("!=", own_rank, rank))):
        builder.ret(i64(0))
    sizes, expected_sizes = body.pointer(array, ArrayWord.Shape), body.pointer(given, Input.Shape)
    with (
        body.each(rank) as axis,
        body.when(builder.icmp_signed("!=", body.number(sizes, axis), body.number(expected_sizes, axis))),
    ):
        builder.ret(i64(0))
    body.call("Py_IncRef", array)
    body.put(given, Input.Held, array)
    builder.ret(i64(1))


def _emit_outputs(code: WordCode) -> None:
    """Emit `outputs (entry) -> list of new arrays, or null after an error`; their addresses go to the frame."""
    body = code.body("outputs", POINTER, [POINTER])
    builder, (entry,) = body.builder, body.args
    inputs, count = body.number(entry, Entry.Inputs), body.number(entry, Entry.Outputs)
    results = body.call("PyList_New", count)
    with body.when(body.is_null(results)):
        builder.ret(NULL)
    first, addresses = _input(body, entry, inputs), body.pointer(entry, Entry.Addresses)
    with body.each(count) as number:
        array = body.call("PyObject_Call", body.pointer(entry, Entry.Empty), body.pointer(first, number), NULL)
        with body.when(body.is_null(array)):
            body.call("Py_DecRef", results)
            builder.ret(NULL)
        body.call("PyList_SetItem", results, number, array)
        body.put(addresses, builder.add(inputs, number), body.pointer(array, ArrayWord.Data))
    builder.ret(results)


def _emit_call(code: WordCode) -> None:
    body = code.body(CALL_FROM_PYTHON, POINTER, [POINTER, POINTER], exported=True)
    builder, (words, feeds) = body.builder, body.args
    entry = body.pointer(words, ArrayWord.Data)
    none = body.pointer(entry, Entry.NoResult)
    other_type = builder.icmp_unsigned("!=", body.number(feeds, ObjectWord.Type), body.number(entry, Entry.DictType))
    with body.when(other_type):
        body.call("Py_IncRef", none)
        builder.ret(none)
    inputs, addresses = body.number(entry, Entry.Inputs), body.pointer(entry, Entry.Addresses)
    is_busy = builder.icmp_signed("!=", body.swap(entry, Entry.Busy, i64(1)), i64(0))
    with body.when(is_busy):
        body.call("Py_IncRef", none)
        builder.ret(none)
    with body.when(builder.icmp_signed("!=", body.call("PyDict_Size", feeds), inputs)):
        _give_up(body, entry, i64(0), none)
    with body.each(inputs) as number:
        given = _input(body, entry, number)
        array = body.call("PyDict_GetItem", feeds, body.pointer(given, Input.Name))
        with body.when(builder.icmp_signed("==", body.call("take", entry, given, array), i64(0))):
            _give_up(body, entry, number, none)
        body.put(addresses, number, body.pointer(array, ArrayWord.Data))
    results = body.call("outputs", entry)
    with body.when(body.is_null(results)):
        body.call("release", entry, inputs)
        builder.ret(NULL)
    thread = body.call("PyEval_SaveThread")
    body.run_function(body.pointer(entry, Entry.Run), [body.pointer(entry, Entry.Frame)])
    body.call("PyEval_RestoreThread", thread)
    body.call("release", entry, inputs)
    builder.ret(results)


def _give_up(body: Body, entry: ir.Value, held: ir.Value, none: ir.Value) -> None:
    """Emit the end of a call that is none of those prepared for."""
    body.call("release", entry, held)
    body.call("Py_IncRef", none)
    body.builder.ret(none)
