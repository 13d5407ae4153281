"""Single ONNX operators in onnxruntime, the oracle of the reference semantics."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

OPSET = 24


def run_operator(
    operator: str, feeds: Mapping[str, NDArray[np.float32]], **attributes: float | str
) -> NDArray[np.float32]:
    node = helper.make_node(operator, list(feeds), ["result"], **attributes)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()]
    output = helper.make_tensor_value_info("result", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "operator", inputs, [output])
    return run_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10), feeds)


def run_model(model: onnx.ModelProto, feeds: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, dict(feeds))
    assert isinstance(result, np.ndarray)
    return result
