"""onnxruntime on one thread, with arrays that are bound once."""

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from ..verification.measuring import Call

Array = NDArray[np.generic]


def bound_onnxruntime(model: bytes, x: Array, y: Array) -> Call:
    """Return a call of a model from `x` to `y`."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return bound_session(onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]), x, y)


def bound_session(session: onnxruntime.InferenceSession, x: Array, y: Array) -> Call:
    """Return a call of a session from `x` to `y`."""
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, y.dtype.type, y.shape, y.ctypes.data)

    def call(_: Array = y) -> None:
        session.run_with_iobinding(binding)

    return call
