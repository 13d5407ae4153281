"""Running and inspecting a model of the zoo with programs that are not ours."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray


def serialized(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString()


def checked(model: ir.Model) -> None:
    onnx.checker.check_model(ir.to_proto(model), full_check=True)  # pyright: ignore[reportUnknownMemberType]


def session(model: ir.Model) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(serialized(model), providers=["CPUExecutionProvider"])


def run(model: ir.Model, feeds: dict[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
    outputs = session(model).run(None, feeds)
    return [np.asarray(output) for output in outputs]


def weights(model: ir.Model) -> dict[str, NDArray[np.float32]]:
    """The 2-D float32 initializers by name."""
    tensors = {name: value.const_value for name, value in model.graph.initializers.items()}
    arrays = {name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None}
    return {name: array for name, array in arrays.items() if array.ndim == 2 and array.dtype == np.float32}


def density(array: NDArray[np.float32]) -> float:
    return float(np.count_nonzero(array)) / array.size
