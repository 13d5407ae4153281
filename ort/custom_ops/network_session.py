"""A network without native code: onnxruntime runs it in a session of its own, for the node that stands for it."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from ...lowering.calls.table import Header
from ..native.api import Slot
from .node import OrtFunctions, tensor_at


class NetworkSession:
    """A session of a network, whose inputs and outputs are those of its node in the same order."""

    def __init__(self, session: InferenceSession) -> None:
        """Make the table by which native code knows how many there are."""
        self._session = session
        self._names = [value.name for value in session.get_inputs()]
        self.table = np.zeros(Header.word_count, np.int64)
        self.table[Header.inputs], self.table[Header.outputs] = len(self._names), len(session.get_outputs())

    def run(self, functions: OrtFunctions, context: int) -> None:
        """Run the network on the inputs of an `OrtKernelContext`, and write its outputs."""
        values = [functions.word(Slot.KernelContext_GetInput, context, at) for at in range(len(self._names))]
        arrays = [tensor_at(functions, value, f"input {at}") for at, value in enumerate(values)]
        found: list[NDArray[Any]] = self._session.run(None, dict(zip(self._names, arrays, strict=True)))
        for index, array in enumerate(found):
            content = np.ascontiguousarray(array)
            dims = (ctypes.c_int64 * max(content.ndim, 1))(*content.shape)
            place = (ctypes.addressof(dims), content.ndim)
            output = functions.word(Slot.KernelContext_GetOutput, context, index, *place)
            address = functions.word(Slot.GetTensorMutableData, output)
            ctypes.memmove(address, content.ctypes.data, content.nbytes)
