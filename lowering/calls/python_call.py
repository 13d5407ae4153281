"""A call from Python without Python's steps: a builtin function whose argument is the dictionary of inputs.

It takes what most calls are: exact arrays of float32, contiguous, of the shapes that the call was prepared for. For
all else it returns None, and the caller goes the long way, which knows what to say.
"""

from typing import Final

from ..llvm.flow import loop
from ..llvm.values import I32, I64, POINTER, VOID, Ints, Number
from .words import NULL, Shared, Struct, WordCode, Words, address, number, rarely

OBJECT_BYTES: Final = 16
"""Bytes of the head of each object: references and type."""


class Object(Struct):
    """Words of any object."""

    type = number(1)


class Array(Object):
    """Words of numpy's arrays, as its macros read them in every extension."""

    data = address(Words)
    rank = Shared()
    """An int."""
    shape = address(Words)
    dtype = number(7)
    flags = Shared()
    """An int."""


CONTIGUOUS: Final = 1
"""The flag of arrays that are contiguous, their last axis first."""


class Input(Struct):
    """Words of an input."""

    name = address(Words)
    rank = number()
    shape = address(Words)
    """Address of its sizes."""
    held = address(Words)
    """The array of the call under way."""


class Entry(Struct):
    """Words of a prepared call; the words of its inputs and of its outputs follow."""

    busy = Shared()
    """1 while it is under way: another thread goes the long way."""
    frame = address(Words)
    run = address(Words)
    """`void (frame)`."""
    addresses = address(Words)
    """The address that the frame has of its inputs and outputs."""
    inputs = number()
    outputs = number()
    no_result = address(Words)
    """The object None."""
    dict_type = number()
    array_type = number()
    float32 = number()
    """The object of the data type."""
    empty = address(Words)
    """The function that makes an array."""

    def input(self, number: Number) -> Input:
        """Return the words of an input."""
        return self.at(number * Input.word_count + self.word_count).cast(Input)


OUTPUT_WORDS: Final = 1
"""Words of an output: the arguments of `Entry.empty`."""

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


def _emit_release(code: WordCode) -> None:
    """Emit `release (entry, count)`: end the call, which holds the first `count` inputs."""

    @code.function()
    def release(entry: Entry, count: Number) -> None:
        with loop(count) as number:
            code.call("Py_DecRef", entry.input(number).held)
        entry.busy.swap(0)


def _emit_take(code: WordCode) -> None:
    """Emit `take (entry, input, array) -> 1 where the array is as the call was prepared for`; it is held from then."""

    @code.function()
    def take(entry: Entry, given: Input, array: Array) -> Number:
        with rarely(array.is_null()):
            code.leave(0)
        with rarely(array.type != entry.array_type):
            code.leave(0)
        with rarely(array.dtype != entry.float32):
            code.leave(0)
        flags = array.flags.cast(Ints).narrow(0)
        is_other = flags & CONTIGUOUS == 0
        rank = given.rank
        own_rank = array.rank.cast(Ints).narrow(0).signed()
        with rarely(is_other | (own_rank != rank)):
            code.leave(0)
        sizes, expected_sizes = array.shape, given.shape
        with loop(rank) as axis, rarely(sizes[axis] != expected_sizes[axis]):
            code.leave(0)
        code.call("Py_IncRef", array)
        given.held = array
        return code.constant(1)


def _emit_outputs(code: WordCode) -> None:
    """Emit `outputs (entry) -> list of new arrays, or null after an error`; their addresses go to the frame."""

    @code.function()
    def outputs(entry: Entry) -> Words:
        inputs, count = entry.inputs, entry.outputs
        results = code.address("PyList_New", count)
        with rarely(results.is_null()):
            code.leave(NULL)
        first, addresses = entry.input(inputs), entry.addresses
        with loop(count) as number:
            array = code.address("PyObject_Call", entry.empty, first.to(number), NULL).cast(Array)
            with rarely(array.is_null()):
                code.call("Py_DecRef", results)
                code.leave(NULL)
            code.call("PyList_SetItem", results, number, array)
            place = inputs + number
            addresses[place] = array.data
        return results


def _emit_call(code: WordCode) -> None:
    @code.function(CALL_FROM_PYTHON, exported=True)
    def call(words: Array, feeds: Object) -> Words:
        entry = words.data.cast(Entry)
        none = entry.no_result
        with rarely(feeds.type != entry.dict_type):
            code.call("Py_IncRef", none)
            code.leave(none)
        inputs, addresses = entry.inputs, entry.addresses
        with rarely(entry.busy.swap(1) != 0):
            code.call("Py_IncRef", none)
            code.leave(none)
        with rarely(code.number("PyDict_Size", feeds) != inputs):
            _give_up(code, entry, 0, none)
        # the addresses of the arrays that come in, each of which is held from then on
        with loop(inputs) as number:
            given = entry.input(number)
            array = code.address("PyDict_GetItem", feeds, given.name).cast(Array)
            with rarely(code.number("take", entry, given, array) == 0):
                _give_up(code, entry, number, none)
            addresses[number] = array.data
        results = code.address("outputs", entry)
        with rarely(results.is_null()):
            code.call("release", entry, inputs)
            code.leave(NULL)
        # the work itself, while other threads may run Python
        thread = code.address("PyEval_SaveThread")
        entry.run.call(entry.frame)
        code.call("PyEval_RestoreThread", thread)
        code.call("release", entry, inputs)
        return results


def _give_up(code: WordCode, entry: Entry, held: Number | int, none: Words) -> None:
    """Emit the end of a call that is none of those prepared for."""
    code.call("release", entry, held)
    code.call("Py_IncRef", none)
    code.leave(none)
