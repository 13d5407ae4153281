"""A node of the operator library as onnxruntime describes it while the node is made: its attributes and constants."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...foundation.errors import RedpebbleError
from ..native.api import Slot

DTYPES: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
}
"""onnxruntime's numbers for element types."""

FAILED: Final = 1
"""`ORT_FAIL`."""

INTERRUPT: Final = ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, ctypes.c_void_p).value
"""A function that tells the interpreter of Ctrl-C, which it raises where it next runs."""

Word = ctypes.c_void_p | bytes | int | None
"""An argument of onnxruntime: an address, a text, a number."""


class OrtError(RedpebbleError):
    """onnxruntime refused a call; the message is its own."""


@cache
def _callable(address: int, count: int) -> Callable[..., int | None]:
    """Return a function of so many words or pointers; to make one takes as long as to call it."""
    return ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * count)(address)


@dataclass(frozen=True)
class OrtFunctions:
    """The functions of a table at an address; all arguments are words or pointers."""

    address: int
    main: int = 0
    """The `OrtApi`, where the table is another one: it has the functions for errors."""

    def call(self, slot: int, *arguments: Word) -> None:
        """Call a function that returns a status.

        Raises:
            OrtError: the status is an error.
        """
        status = _callable(self.function(slot), len(arguments))(*arguments)
        if status:
            errors = OrtFunctions(self.main or self.address)
            message = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(errors.function(Slot.GetErrorMessage))(status)
            errors.release(Slot.ReleaseStatus, status)
            raise OrtError(bytes(message).decode(errors="replace"))

    def word(self, slot: int, *arguments: Word) -> int:
        """Return the word that a function writes behind its last argument."""
        result = ctypes.c_uint64(0)
        self.call(slot, *arguments, ctypes.addressof(result))
        return result.value

    def status(self, message: str) -> int:
        """Return a status of onnxruntime that says what went wrong."""
        create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
        return create(self.function(Slot.CreateStatus))(FAILED, message.encode()) or 0

    def release(self, slot: int, value: int) -> None:
        """Give a thing back."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.function(slot))(value)

    def function(self, slot: int) -> int:
        """Return the address of a function."""
        return ctypes.c_uint64.from_address(self.address + 8 * slot).value


@dataclass(frozen=True)
class OrtNode:
    """A node behind an `OrtKernelInfo`, which is only valid while the node is made."""

    functions: OrtFunctions
    info: int

    def integer(self, name: str) -> int:
        """Return an integer attribute."""
        value = self.functions.word(Slot.KernelInfoGetAttribute_int64, self.info, name.encode())
        return value - (1 << 64) if value >> 63 else value

    def text(self, name: str) -> str:
        """Return a string attribute."""
        size = ctypes.c_size_t(0)
        arguments = (self.info, name.encode())
        self.functions.call(Slot.KernelInfoGetAttribute_string, *arguments, None, ctypes.addressof(size))
        buffer = ctypes.create_string_buffer(size.value)
        buffer_address = ctypes.addressof(buffer)
        self.functions.call(Slot.KernelInfoGetAttribute_string, *arguments, buffer_address, ctypes.addressof(size))
        return buffer.value.decode()

    def constants(self, first: int) -> list[NDArray[Any] | None]:
        """Return copies of the inputs from `first` on, each in its shape, None for one that is no constant.

        Raises:
            ValueError: there is no input `first`, or numpy has no type for one of them.
        """
        count = self.functions.word(Slot.KernelInfo_GetInputCount, self.info)
        if not 0 <= first <= count:
            raise ValueError(f"the node has {count} inputs, and states {first} activations")
        return [self._constant(index) for index in range(first, count)]

    def _constant(self, index: int) -> NDArray[Any] | None:
        is_constant, value = ctypes.c_int(0), ctypes.c_void_p(None)
        addresses = (ctypes.addressof(is_constant), ctypes.addressof(value))
        self.functions.call(Slot.KernelInfoGetConstantInput_tensor, self.info, index, *addresses)
        if not is_constant.value or value.value is None:
            return None
        return tensor_at(self.functions, value.value, f"input {index}")


def one_line(error: BaseException) -> str:
    """Return the message of an error, the name of its type if empty."""
    return " ".join(str(error).split()) or type(error).__name__


def tensor_at(functions: OrtFunctions, value: int, name: str) -> NDArray[Any]:
    """Return a copy of the tensor in an `OrtValue`.

    Raises:
        ValueError: numpy has no type for it.
    """
    info = functions.word(Slot.GetTensorTypeAndShape, value)
    try:
        element = functions.word(Slot.GetTensorElementType, info)
        shape = _shape(functions, info)
    finally:
        functions.release(Slot.ReleaseTensorTypeAndShapeInfo, info)
    dtype = DTYPES.get(element)
    if dtype is None:
        raise ValueError(f"{name}: expected element type {_numbers(list(DTYPES))}, got {element}")
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    address = functions.word(Slot.GetTensorMutableData, value)
    # a copy: onnxruntime may drop an initializer once all nodes are made
    content = ctypes.string_at(address, size) if size else b""
    return np.frombuffer(content, dtype=dtype).reshape(shape)


def _shape(functions: OrtFunctions, info: int) -> list[int]:
    rank = functions.word(Slot.GetDimensionsCount, info)
    dims = (ctypes.c_int64 * max(rank, 1))()
    functions.call(Slot.GetDimensions, info, ctypes.addressof(dims), rank)
    return list(dims[:rank])


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
