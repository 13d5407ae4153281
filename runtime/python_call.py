"""Calls by a builtin function of native code (`lowering/calls/python_call`), for inputs of shapes known beforehand."""

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ..lowering.calls.python_call import (
    CALL_FROM_PYTHON,
    CONTIGUOUS,
    OBJECT_BYTES,
    OUTPUT_WORDS,
    ArrayWord,
    Entry,
    Input,
)
from .call import Call
from .call_code import call_code
from .memory import FLOAT32, address_of, aligned_bytes

Outputs = list[NDArray[np.float32]]
ONE_ARGUMENT: Final = 0x0008
"""Python's METH_O: the function takes one argument."""


class _MethodDef(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class PythonCall:
    """A call with inputs of some shapes."""

    run: Callable[[Mapping[str, Any]], Outputs | None]
    """Returns the outputs of inputs by name; None where they are not as the call was prepared for."""
    call: Call
    owned: tuple[object, ...]
    """Owners of what else the function reads."""


def python_call(
    call: Call, inputs: Mapping[str, tuple[int, ...]], outputs: Sequence[tuple[int, ...]]
) -> list[PythonCall]:
    """Return the function for inputs and outputs of these shapes, which has `call` to itself; none without code."""
    make = _maker()
    if make is None:
        return []
    shapes = [np.array(shape, dtype=np.int64) for shape in inputs.values()]
    arguments = [(shape, FLOAT32) for shape in outputs]
    words = aligned_bytes(8 * (len(Entry) + len(Input) * len(inputs) + OUTPUT_WORDS * len(outputs))).view(np.int64)
    words[: len(Entry)] = [
        0,
        call.frame,
        call_code().addresses["run"],
        address_of(call.buffers),
        len(inputs),
        len(outputs),
        *map(id, (None, dict, np.ndarray, FLOAT32, np.empty)),
    ]
    given = words[len(Entry) :][: len(Input) * len(inputs)].reshape(len(inputs), len(Input))
    for row, name, shape in zip(given, inputs, shapes, strict=True):
        row[:] = [id(name), len(shape), address_of(shape), 0]
    words[words.size - len(outputs) :] = [*map(id, arguments)]
    run = cast("Callable[[Mapping[str, Any]], Outputs | None]", make(words))
    return [PythonCall(run, call, ([*inputs], shapes, arguments))]


@cache
def _maker() -> Callable[[NDArray[np.int64]], object] | None:
    """Return what makes a function of an entry; None where objects are not laid out as its code reads them."""
    if not _is_known_layout():
        return None
    definition = _MethodDef(b"run", call_code().addresses[CALL_FROM_PYTHON], ONE_ARGUMENT, None)
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    make = prototype(("PyCFunction_NewEx", ctypes.pythonapi))
    return lambda entry: make(ctypes.addressof(definition), entry, None)


def _is_known_layout() -> bool:
    """Return whether objects and arrays of this Python and numpy lie in memory as the code reads them."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if object.__basicsize__ != OBJECT_BYTES or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    probe = np.empty((3, 5), dtype=FLOAT32)
    words = np.ctypeslib.as_array((ctypes.c_int64 * (ArrayWord.Flags + 1)).from_address(id(probe)))
    shape = (ctypes.c_int64 * 2).from_address(int(words[ArrayWord.Shape]))
    found = words[1], words[ArrayWord.Data], words[ArrayWord.Dtype], int(words[ArrayWord.Rank]) & 0xFFFFFFFF
    flags = int(words[ArrayWord.Flags]) & 0xFFFFFFFF
    expected = id(np.ndarray), address_of(probe), id(FLOAT32), probe.ndim
    return found == expected and tuple(shape) == probe.shape and flags == probe.flags.num and bool(flags & CONTIGUOUS)
