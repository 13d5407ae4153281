"""Single ONNX operators in onnxruntime, the oracle of the reference semantics."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

OPSET = 24
Feeds = Mapping[str, NDArray[np.float32]]


def run_operator(operator: str, feeds: Feeds, attributes: Mapping[str, Any] | None = None) -> NDArray[np.float32]:
    node = helper.make_node(operator, list(feeds), ["result"], **(attributes or {}))
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()]
    output = helper.make_tensor_value_info("result", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "operator", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, dict(feeds))
    assert isinstance(result, np.ndarray)
    return result
