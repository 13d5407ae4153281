"""The onnxruntime that has asked: its tables of functions, and its memory."""

import ctypes
from dataclasses import dataclass

from redpebble.ort.custom_ops.node import OrtFunctions
from redpebble.ort.native.api import SHAPE_VERSION, Slot
from redpebble.ort.native.ep_api import EP_VERSION, GraphSlot
from redpebble.ort.provider.memory import OrtMemory, word_at


@dataclass(frozen=True)
class Runtime:
    """The onnxruntime that has asked: its functions, and the one that only newer versions have, or 0."""

    functions: OrtFunctions
    ep_functions: OrtFunctions
    memory: OrtMemory
    shape_of: int


def runtime_of(base: int, minor: int) -> Runtime:
    """Return the functions behind an `OrtApiBase` of onnxruntime 1.`minor`."""
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(word_at(base))
    functions = OrtFunctions(get_api(EP_VERSION) or 0)
    get_ep_api = ctypes.CFUNCTYPE(ctypes.c_void_p)(word_at(functions.address, GraphSlot.GetEpApi))
    slot = Slot.GetTensorElementTypeAndShapeDataReference
    shape_of = word_at(get_api(SHAPE_VERSION) or 0, slot) if minor >= SHAPE_VERSION else 0
    return Runtime(functions, OrtFunctions(get_ep_api() or 0, functions.address), OrtMemory(functions), shape_of)
