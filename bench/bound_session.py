"""onnxruntime with inputs and outputs that are bound once, its way with the least overhead."""

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from ..tools.benching.engines.aligned import aligned_zeros
from ..verification.measuring import Call


def bound_session(session: InferenceSession, x: NDArray[np.float32], outputs: int) -> Call:
    """Return a call of a session from one input x [batch, inputs] to one output y [batch, `outputs`]."""
    binding, y = session.io_binding(), aligned_zeros(len(x), outputs)
    binding.bind_cpu_input(session.get_inputs()[0].name, x)
    binding.bind_output(session.get_outputs()[0].name, "cpu", 0, np.float32, y.shape, y.ctypes.data)

    def run() -> NDArray[np.float32]:
        session.run_with_iobinding(binding)
        return y

    return run
