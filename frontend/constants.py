"""Which values of a graph are constants, and their numbers."""

import numpy as np
import onnx_ir
from numpy.typing import NDArray

OVERRIDABLE_SINCE = 4
"""IR version since which an initializer that is also a graph input is only its default."""


def overridable(value: onnx_ir.Value, ir_version: int) -> bool:
    """Return whether a caller may replace the initializer `value`."""
    return value.is_initializer() and value.is_graph_input() and ir_version >= OVERRIDABLE_SINCE


def is_constant(value: onnx_ir.Value, ir_version: int) -> bool:
    """Return whether the value is an initializer that nothing can replace."""
    return value.is_initializer() and value.const_value is not None and not overridable(value, ir_version)


def constant_array(value: onnx_ir.Value, ir_version: int) -> NDArray[np.generic] | None:
    """Return the numbers of a constant (memory-mapped where they lie in a file of their own), or None."""
    if not is_constant(value, ir_version) or value.const_value is None:
        return None
    return None if value.const_value.dtype == onnx_ir.DataType.STRING else value.const_value.numpy()
