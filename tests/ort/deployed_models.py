"""A small sparse network, written by hand as a node of our domain with a function of its name, and its native code."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from redpebble.driver.compiler import native_code
from redpebble.ort.custom_ops.library import build_library, level_target
from redpebble.ort.native.tables import LEVEL_VARIABLE, LEVELS
from redpebble.runtime.jit import missing_features
from redpebble.runtime.store.artefact import Artefact
from redpebble.tuning.calibration import prices_of_cpu

DOMAIN = "ai.redpebble"
OPERATOR = "SparseNetwork_0"
INPUTS, HIDDEN, OUTPUTS = 24, 40, 17
DIGEST = "0123456789abcdef" * 4

Array = NDArray[np.float32]
Attributes = Mapping[str, str | int]
Constants = Sequence[NDArray[Any] | None]

FUNCTION = f"""
<domain: "{DOMAIN}", opset_import: ["" : 21]>
{OPERATOR} (x, r, values, rows, bias, last) => (h, y)
{{
    size = Constant <value_ints: ints = [{INPUTS}, {HIDDEN}]> ()
    zeros = ConstantOfShape <value: tensor = float[1] {{0.0}}> (size)
    weight = ScatterElements <axis: int = 0, reduction: string = "add"> (zeros, rows, values)
    product = MatMul (x, weight)
    sum = Add (product, bias)
    h = Relu (sum)
    next = MatMul (h, last)
    y = Add (next, r)
}}
"""
"""h = relu (x W + bias), y = h last + r; the nonzeros of W stand in columns: three in each."""

DENSE = f"""
<ir_version: 10, opset_import: ["" : 21]>
network (float[batch, {INPUTS}] x, float[batch, {OUTPUTS}] r) => (float[batch, {HIDDEN}] h, float[batch, {OUTPUTS}] y)
{{
    product = MatMul (x, weight)
    sum = Add (product, bias)
    h = Relu (sum)
    next = MatMul (h, last)
    y = Add (next, r)
}}
"""


@dataclass(frozen=True)
class Weights:
    """The constants of a node."""

    values: Array
    rows: NDArray[np.int64]
    bias: Array
    last: Array

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self.values, self.rows, self.bias, self.last


def weights(seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.choice(INPUTS, 3, replace=False) for _ in range(HIDDEN)], axis=1).astype(np.int64)
    last = rng.standard_normal((HIDDEN, OUTPUTS)).astype(np.float32)
    last[rng.random(last.shape) < 0.8] = 0
    values = rng.standard_normal((3, HIDDEN)).astype(np.float32)
    return Weights(values, rows, rng.standard_normal(HIDDEN).astype(np.float32), last)


def model(attributes: Mapping[str, Any] | None = None, operator: str = OPERATOR, seed: int = 0) -> onnx.ModelProto:
    """A model of one node; `attributes` replace those that are right, None leaves one out."""
    names = ("values", "rows", "bias", "last")
    given: dict[str, Any] = {"network": "by hand", "digest": DIGEST, "activations": 2, "format": 1}
    given |= attributes or {}
    given = {name: value for name, value in given.items() if value is not None}
    node = helper.make_node(operator, ["x", "r", *names], ["h", "y"], name="node", domain=DOMAIN, **given)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "graph",
        [value("x", TensorProto.FLOAT, ["n", "i"]), value("r", TensorProto.FLOAT, ["m", "o"])],
        [value("h", TensorProto.FLOAT, None), value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in zip(names, weights(seed).arrays, strict=True)],
    )
    function = onnx.parser.parse_function(FUNCTION.replace(OPERATOR, operator))
    function.attribute.extend(given)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets, functions=[function])


def dense_model(constants: Sequence[NDArray[Any]]) -> onnx.ModelProto:
    """The network as a model of its own, from the constants of a node."""
    values, rows, bias, last = constants
    dense = np.zeros((INPUTS, HIDDEN), dtype=np.float32)
    np.put_along_axis(dense, rows, values, axis=0)
    proto = onnx.parser.parse_model(DENSE)
    named = {"weight": dense, "bias": bias, "last": last}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in named.items())
    return proto


@cache
def artefact(level: str, seed: int = 0) -> Artefact:
    return native_code(dense_model(weights(seed).arrays), target=level_target(level), cache=False)


def has_level(level: str) -> bool:
    """Whether this CPU is of a level, in the judgement of LLVM, and of Linux for who made it."""
    is_made = level != "zen4" or prices_of_cpu() == "zen5"
    return is_made and not missing_features(level_target(level))


def compiler(operator: str, attributes: Attributes, constants: Constants) -> Artefact:
    """What a session of this process compiles a node with."""
    arrays = [array for array in constants if array is not None]
    assert len(arrays) == 4
    assert operator == OPERATOR
    return _compiled(tuple((array.tobytes(), array.dtype.str, array.shape) for array in arrays))


@cache
def _compiled(arrays: tuple[tuple[bytes, str, tuple[int, ...]], ...]) -> Artefact:
    constants = [np.frombuffer(data, dtype=dtype).reshape(shape) for data, dtype, shape in arrays]
    return native_code(dense_model(constants), cache=False)


@cache
def ahead_of_time(levels: tuple[str, ...] = ("generic", "avx2", "avx512")) -> bytes:
    return build_library({OPERATOR: [(DIGEST, {level: artefact(level) for level in levels})]})


def feeds(batch: int, seed: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((batch, INPUTS)).astype(np.float32),
        "r": rng.standard_normal((batch, OUTPUTS)).astype(np.float32),
    }


def options(library: Path | None = None, threads: int = 1) -> onnxruntime.SessionOptions:
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = threads
    made.log_severity_level = 4
    if library is not None:
        made.register_custom_ops_library(str(library))
    return made


def session(proto: onnx.ModelProto, library: Path | None = None, threads: int = 1) -> onnxruntime.InferenceSession:
    made = options(library, threads)
    return onnxruntime.InferenceSession(proto.SerializeToString(), made, providers=["CPUExecutionProvider"])


def expected(inputs: Mapping[str, Array], seed: int = 0) -> list[NDArray[Any]]:
    """The outputs in double precision."""
    w = weights(seed)
    dense = np.zeros((INPUTS, HIDDEN))
    np.put_along_axis(dense, w.rows, w.values.astype(np.float64), axis=0)
    hidden = np.maximum(inputs["x"].astype(np.float64) @ dense + w.bias, 0)
    return [hidden, hidden @ w.last + inputs["r"]]


def assert_right(outputs: Sequence[NDArray[Any]], inputs: Mapping[str, Array], seed: int = 0) -> None:
    for actual, right in zip(outputs, expected(inputs, seed), strict=True):
        assert actual.shape == right.shape
        np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-4)


def limit_level(library: Path, level: str) -> None:
    """Let a loaded library use no more than `level`."""
    ctypes.c_int64.in_dll(ctypes.CDLL(str(library)), LEVEL_VARIABLE).value = LEVELS["x86_64"].index(level)
