"""Six-line models with numpy weights, and onnxruntime as the judge of what the imported module computes."""

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper
from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.semantics.interpreter import interpret
from redpebble.frontend.import_model import import_model

Arrays = dict[str, NDArray[Any]]


def model(
    signature: str, nodes: str, *, opset: int = 21, ir_version: int = 10, weights: Arrays | None = None
) -> onnx.ModelProto:
    """Return the model `g signature { nodes }` with `weights` as initializers; com.microsoft is imported, too."""
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    proto = onnx.parser.parse_model(f"{header} g {signature} {{ {nodes} }}")
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Return normally distributed weights, the same for the same shape."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def feeds_of(proto: onnx.ModelProto, size: int) -> Arrays:
    """Return inputs in which every symbolic or unknown dimension is `size`."""
    given = {tensor.name for tensor in proto.graph.initializer}
    feeds: Arrays = {}
    for index, value in enumerate(proto.graph.input):
        if value.name not in given:
            dims = value.type.tensor_type.shape.dim
            shape = [dim.dim_value if dim.HasField("dim_value") else size for dim in dims]
            feeds[value.name] = normal(*shape, seed=index + 1)
    return feeds


def session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Return an onnxruntime session that computes every node as it stands."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def imported(proto: onnx.ModelProto) -> ModuleOp:
    """Return the module of a model that is covered entirely."""
    return import_model(proto, foreign="refuse").module


def assert_agrees(proto: onnx.ModelProto, sizes: tuple[int, ...] = (1, 3)) -> None:
    """Assert that module and model compute the same for each size of the symbolic dimensions."""
    module, judge = imported(proto), session(proto)
    for size in sizes:
        feeds = feeds_of(proto, size)
        expected = judge.run(None, feeds)
        for ours, theirs in zip(interpret(module, feeds), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
            assert ours.shape == theirs.shape
