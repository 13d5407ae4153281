"""A call whose arrays are known beforehand: what is left to do is the call itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..lowering.program import Program
from .call import Call
from .memory import address_of, aligned_bytes

Array = NDArray[Any]


class BoundCall:
    """A network with its inputs and outputs; `run` reads and writes these arrays, whatever they hold by then.

    One thread at a time may run it; several bound calls of one network may run at once.
    """

    def __init__(
        self,
        call: Call,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        zeroed: Sequence[Array] = (),
    ) -> None:
        """Write the addresses of the arrays into the call; they stay alive as long as it does.

        Those of the outputs that are `zeroed` are set to zeros before each call.
        """
        for index, array in enumerate((*inputs, *outputs)):
            call.buffers[index] = address_of(array)
        self._call = call
        self._native = call.native
        self._zeroed = tuple(zeroed)
        self.inputs = tuple(inputs)
        """Inputs in the order of `Network.get_inputs`."""
        self.outputs = list(outputs)
        """Outputs in the order of `Network.get_outputs`."""

    def run(self) -> list[Array]:
        """Compute the outputs, and return the arrays that hold them."""
        for array in self._zeroed:
            array.fill(0)
        self._native.run()
        return self.outputs


def bound_inputs(program: Program, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the arrays of `feeds`, which has all inputs, in their order.

    Raises:
        ValueError: an array cannot be read in place.
    """
    inputs = [feeds[tensor.name] for tensor in program.inputs]
    for tensor, array in zip(program.inputs, inputs, strict=True):
        _check(f"input {tensor.name!r}", array, tensor.dtype)
    return inputs


def bound_outputs(program: Program, given: Mapping[str, Array], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return the arrays of `given`, and new ones for outputs that it lacks, in the order of the outputs.

    Raises:
        ValueError: a name is unknown, or an array cannot be written in place.
    """
    known = [tensor.name for tensor in program.outputs]
    for name in given:
        if name not in known:
            raise ValueError(f"output: expected one of {', '.join(known)}, got {name!r}")
    outputs: list[Array] = []
    for tensor, shape in zip(program.outputs, shapes, strict=True):
        name, dtype = tensor.name, np.dtype(tensor.dtype)
        array = given.get(name)
        if array is None:
            size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
            array = aligned_bytes(size)[:size].view(dtype).reshape(shape)
        _check(f"output {name!r}", array, tensor.dtype)
        if array.shape != tuple(shape):
            raise ValueError(f"output {name!r}: expected shape {tuple(shape)}, got {array.shape}")
        if not array.flags.writeable:
            raise ValueError(f"output {name!r}: expected an array to write to, got a read-only one")
        outputs.append(array)
    return outputs


def check_apart(program: Program, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Check that what is written is not read, nor written as another output.

    Raises:
        ValueError: an output shares memory with an input or with another output.
    """
    arrays = [(f"input {tensor.name!r}", array) for tensor, array in zip(program.inputs, inputs, strict=True)]
    for tensor, output in zip(program.outputs, outputs, strict=True):
        name = f"output {tensor.name!r}"
        # contiguous arrays share memory where their bounds meet
        other = next((what for what, array in arrays if np.may_share_memory(array, output)), None)
        if other is not None:
            raise ValueError(f"{name}: expected memory of its own, got memory shared with {other}")
        arrays.append((name, output))


def _check(what: str, array: Array, dtype: str) -> None:
    if array.dtype != dtype:
        raise ValueError(f"{what}: expected dtype {dtype}, got {array.dtype}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{what}: expected a contiguous array, got strides {array.strides}")
