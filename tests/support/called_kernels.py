"""Kernels by themselves: emitted for a target, compiled, and called on arrays."""

import ctypes
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.llvm.builder import Code
from redpebble.runtime.jit import load_object
from redpebble.runtime.memory import address_of, aligned_bytes
from tests.support.lowering_modules import object_of

T = TypeVar("T", bound=np.generic)

Argument = NDArray[np.generic] | int | float

KINDS: Final[Mapping[str, type]] = {
    "ptr": ctypes.c_void_p,
    "i8": ctypes.c_uint8,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "float": ctypes.c_float,
}


def called(emit: Callable[[Code], ir.Function], target: CpuTarget) -> Callable[..., None]:
    """The function that `emit` makes; where it takes whole vectors, arrays have to be `aligned`."""
    code = Code(target, ir.Module("kernel"))
    function = emit(code)
    function.linkage = "external"
    loaded = load_object(object_of(str(code.module), target), {function.name: (0, 0)})
    native = ctypes.CFUNCTYPE(None, *(KINDS[str(one.type)] for one in function.args))(loaded.addresses[function.name])

    def call(*arguments: Argument) -> None:
        native(*(address_of(one) if isinstance(one, np.ndarray) else one for one in arguments))
        assert loaded.owners  # the code lives as long as these

    return call


def aligned(array: NDArray[T]) -> NDArray[T]:
    """A copy that begins at a cache line."""
    copy = aligned_bytes(array.nbytes)[: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
