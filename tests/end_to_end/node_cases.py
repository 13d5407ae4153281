"""The node tests of `onnx.backend.test` for the covered operators: chosen, and made ready to run."""

import re
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

OPERATORS = (
    *("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "Pad", "Resize", "Upsample"),
    *("Abs", "Add", "BatchNormalization", "Cast", "Celu", "Clip", "Concat", "Div", "Dropout", "Elu", "Erf", "Exp"),
    *("Flatten", "Gelu", "Gemm", "HardSigmoid", "HardSwish", "Identity", "LayerNormalization", "LeakyRelu", "Log"),
    *("LogSoftmax", "MatMul", "Mish", "Mul", "Neg", "PRelu", "Pow", "RMSNormalization", "Reciprocal", "ReduceMean"),
    *("Relu", "Reshape", "Selu", "Sigmoid", "Softmax", "Softplus", "Split", "Sqrt", "Squeeze", "Sub", "Swish"),
    *("Tanh", "Transpose", "Unsqueeze"),
)
"""What is covered natively."""

Tensors = tuple[NDArray[Any], ...]


class NodeCase(NamedTuple):
    """One test: its operator, a model, inputs, what comes out, and how exactly."""

    name: str
    operator: str
    model: onnx.ModelProto
    inputs: Tensors
    expected: Tensors
    rtol: float
    atol: float


def node_cases() -> list[NodeCase]:
    """All tests of the covered operators; those of an operator's function body count as that operator's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # expected values of other operators' tests overflow on purpose
        collected = collect_testcases(None)
    operator_of: dict[str, str] = {}
    for case in collected:
        if case.model is not None and len(case.model.graph.node) == 1:
            operator_of[case.name] = case.model.graph.node[0].op_type
    cases: list[NodeCase] = []
    for case in collected:
        operator = operator_of.get(re.sub(r"_expanded.*$", "", case.name))
        if operator not in OPERATORS or case.model is None or case.data_sets is None:
            continue
        inputs, expected = (tuple(map(_as_array, tensors)) for tensors in case.data_sets[0])
        cases.append(NodeCase(case.name, operator, case.model, inputs, expected, case.rtol, case.atol))
    return cases


def _as_array(tensor: object) -> NDArray[Any]:
    """A tensor of a test as an array; a sequence becomes one as well, nothing runs on it."""
    return numpy_helper.to_array(tensor) if isinstance(tensor, onnx.TensorProto) else np.asarray(tensor)


@cache
def highest_opset() -> int:
    """The newest opset that onnxruntime accepts."""
    opset = onnx.defs.onnx_opset_version()
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [result])
    while session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)) is None:
        opset -= 1
    return opset


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession | None:
    """A session of onnxruntime, or None where it refuses the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # its errors share no base class of their own
        return None


def for_onnxruntime(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model in an opset that onnxruntime accepts, or None where an operator has changed since."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = min(copy.ir_version, 10)
    for opset in copy.opset_import:
        if opset.domain not in ("", "ai.onnx"):
            return None
        newest = highest_opset()
        changes = [onnx.defs.get_schema(node.op_type, opset.version).since_version for node in copy.graph.node]
        if max(changes) > newest:
            return None
        opset.version = min(opset.version, newest)
    return copy


def frozen(case: NodeCase, model: onnx.ModelProto, rng: np.random.Generator) -> NodeCase | None:
    """The case with all inputs but the first as initializers, 90 % of each float matrix among them zeroed.

    None where there is but one input.
    """
    if len(case.inputs) < 2:
        return None
    weights = [_pruned(array, rng) for array in case.inputs[1:]]
    inputs = (case.inputs[0], *weights)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value, array in zip(list(copy.graph.input)[1:], weights, strict=True):
        copy.graph.initializer.append(numpy_helper.from_array(array, value.name))
    del copy.graph.input[1:]
    expected = judged(model, inputs)
    return None if expected is None else case._replace(model=copy, inputs=inputs[:1], expected=expected)


def _pruned(array: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    if array.dtype != np.float32 or array.ndim < 2:
        return array
    return np.where(rng.random(array.shape) < 0.9, np.float32(0), array)


def judged(model: onnx.ModelProto, inputs: Sequence[NDArray[Any]]) -> Tensors | None:
    """What onnxruntime computes, or onnx's reference where onnxruntime refuses, or None where both do."""
    feeds = {value.name: array for value, array in zip(model.graph.input, inputs, strict=True)}
    judge = session(model)
    try:
        if judge is not None:
            return tuple(np.asarray(result) for result in judge.run(None, feeds))
        # its stubs leave the type of names open
        results = ReferenceEvaluator(model).run(None, feeds)  # pyright: ignore[reportUnknownMemberType]
        return tuple(np.asarray(result) for result in results)
    except Exception:  # neither has a base class for its errors
        return None
