"""Constants of a graph: which values are known, and their numbers."""

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ..reading.lazy_sparse_tensor import SparseTensor
from ..reading.model_file import OVERRIDABLE_SINCE


def overridable(value: onnx_ir.Value, ir_version: int) -> bool:
    """Return whether a caller may replace the initializer `value`."""
    return value.is_initializer() and value.is_graph_input() and ir_version >= OVERRIDABLE_SINCE


def is_constant(value: onnx_ir.Value, ir_version: int) -> bool:
    """Return whether the value is an initializer that nothing can replace."""
    return value.is_initializer() and value.const_value is not None and not overridable(value, ir_version)


def _renamed(tensor: onnx_ir.TensorProtocol, name: str) -> onnx_ir.TensorProtocol:
    """Return the same values under another name; the tensor itself may belong to the caller and is not touched."""
    if tensor.dtype == onnx_ir.DataType.STRING:
        return onnx_ir.StringTensor(tensor.numpy(), shape=onnx_ir.Shape(tensor.shape.numpy()), name=name)
    if isinstance(tensor, SparseTensor):
        return tensor.renamed(name)
    return onnx_ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)


def initializer_of(name: str, tensor: onnx_ir.TensorProtocol) -> onnx_ir.Value:
    """Return a value that holds the tensor's values, to be registered as an initializer."""
    own = _renamed(tensor, name)
    shape = onnx_ir.Shape(own.shape.numpy())
    return onnx_ir.Value(name=name, shape=shape, type=onnx_ir.TensorType(own.dtype), const_value=own)


def sparse_matrix(value: onnx_ir.Value, ir_version: int) -> SparseTensor | None:
    """Return a constant that is kept sparse, or None for anything else."""
    tensor = value.const_value
    return tensor if isinstance(tensor, SparseTensor) and is_constant(value, ir_version) else None


def constant_array(value: onnx_ir.Value, ir_version: int) -> NDArray[np.generic] | None:
    """Return the array of a constant in its shape (memory-mapped where it lies in a file of its own), or None.

    A sparse matrix is made dense: who can do without its zeros asks for `sparse_matrix` first.
    """
    if not is_constant(value, ir_version) or value.const_value is None:
        return None
    return None if value.const_value.dtype == onnx_ir.DataType.STRING else value.const_value.numpy()
