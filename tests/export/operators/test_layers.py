from collections.abc import Callable

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from tests.export.export_oracle import Floats, answers, exported, one_node, one_op, operators, original_of

Doubles = NDArray[np.float64]

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
DEEP = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)

WEIGHT = np.arange(8, dtype=np.float32).reshape(4, 2) - 3
BIAS = np.array([0.5, -2.0], dtype=np.float32)
CONSTANTS = """
  %w = pebble.constant {pebble.values = ["W"]}
    dense<[[-3.0, -2.0], [-1.0, 0.0], [1.0, 2.0], [3.0, 4.0]]> : tensor<4x2xf32>
  %b = pebble.constant {pebble.values = ["B"]} dense<[0.5, -2.0]> : tensor<2xf32>
"""


def linear(rank: int, tail: str = "") -> str:
    sizes = {1: "4", 2: "?x4", 3: "?x3x4"}[rank]
    argument, result = f"tensor<{sizes}xf32>", f"tensor<{sizes[:-1]}2xf32>"
    types = f"({argument}, tensor<4x2xf32>{', tensor<2xf32>' if 'bias' in tail else ''}) -> {result}"
    return one_op(f"{CONSTANTS} %y = pebble.linear %x, %w {tail} : {types}", argument, result)


def linear_original(rank: int, opset: int, weights: dict[str, Floats], node: str = "y = Identity(x)") -> str:
    sizes = {1: "4", 2: "N,4", 3: "N,3,4"}[rank]
    return f"""
    <ir_version: 8, opset_import: ["" : {opset}]>
    original (float[{sizes}] x) => (float[{sizes[:-1]}2] y) {{ {node} }}
    """


def exported_linear(rank: int, tail: str, opset: int, weights: dict[str, Floats]) -> onnx.ModelProto:
    return exported(linear(rank, tail), original_of(linear_original(rank, opset, weights), weights))


@pytest.mark.parametrize("opset", [7, 11, 13, 21])
@pytest.mark.parametrize("tail", ["", "bias %b", "bias %b activation <relu>", "activation <gelu_tanh>"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_linear_layer_is_written_for_every_rank_and_orientation(
    rank: int, tail: str, opset: int, transposed: bool
) -> None:
    proto = exported_linear(rank, tail, opset, {"W": WEIGHT.T if transposed else WEIGHT, "B": BIAS})
    x = {1: X[0], 2: X, 3: DEEP}[rank]
    expected = x.astype(np.float64) @ WEIGHT + (BIAS if "bias" in tail else 0)
    if "relu" in tail:
        expected = np.maximum(expected, 0)
    if "gelu" in tail:
        expected = expected * (1 + np.tanh(np.sqrt(2 / np.pi) * (expected + 0.044715 * expected**3))) / 2
    np.testing.assert_allclose(answers(proto, {"x": x})[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("rank", "tail", "transposed", "opset", "written"),
    [
        (2, "", False, 13, ["MatMul"]),
        (2, "", True, 13, ["Gemm"]),
        (2, "bias %b", False, 13, ["Gemm"]),
        (2, "bias %b activation <relu>", True, 13, ["Gemm", "Relu"]),
        (3, "bias %b", False, 13, ["MatMul", "Add"]),
        (1, "bias %b", False, 13, ["MatMul", "Add"]),
    ],
)
def test_a_linear_layer_is_as_few_nodes_as_onnx_has(
    rank: int, tail: str, transposed: bool, opset: int, written: list[str]
) -> None:
    proto = exported_linear(rank, tail, opset, {"W": WEIGHT.T if transposed else WEIGHT, "B": BIAS})
    assert operators(proto) == written


@pytest.mark.parametrize("transposed", [False, True])
def test_an_unchanged_weight_keeps_its_name_and_orientation(transposed: bool) -> None:
    weight = np.ascontiguousarray(WEIGHT.T if transposed else WEIGHT)
    proto = exported_linear(2, "bias %b", 13, {"W": weight, "B": BIAS})
    kept = {entry.name: onnx.numpy_helper.to_array(entry) for entry in proto.graph.initializer}
    assert set(kept) == {"W", "B"}
    np.testing.assert_array_equal(kept["W"], weight)


def test_a_changed_weight_keeps_the_name_and_the_orientation_that_gemm_read() -> None:
    weights = {"W": np.ones((2, 4), dtype=np.float32), "B": BIAS}
    original = original_of(linear_original(2, 13, weights, "y = Gemm<transB = 1>(x, W, B)"), weights)
    proto = exported(linear(2, "bias %b"), original)
    kept = {entry.name: onnx.numpy_helper.to_array(entry) for entry in proto.graph.initializer}
    np.testing.assert_array_equal(kept["W"], WEIGHT.T)
    assert operators(proto) == ["Gemm"]


def test_a_bias_with_a_leading_axis_stays_as_it_is() -> None:
    proto = exported_linear(2, "bias %b", 13, {"W": WEIGHT, "B": BIAS[np.newaxis]})
    assert {entry.name: list(entry.dims) for entry in proto.graph.initializer} == {"W": [4, 2], "B": [1, 2]}


def test_a_sparse_constant_is_written_dense() -> None:
    line = """
    %w = pebble.sparse_constant pointers dense<[0, 2, 3]> : tensor<3xi64> rows dense<[0, 2, 1]> : tensor<3xi64>
      values dense<[1.0, 2.0, 3.0]> : tensor<3xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 3>>
    %y = pebble.linear %x, %w
      : (tensor<?x4xf32>, tensor<4x2xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<?x2xf32>
    """
    proto = exported(one_op(line, "tensor<?x4xf32>", "tensor<?x2xf32>"), original_of(linear_original(2, 13, {})))
    dense = np.array([[1, 0], [0, 3], [2, 0], [0, 0]], dtype=np.float32)
    np.testing.assert_allclose(answers(proto, {"x": X})[0], X @ dense, rtol=1e-6)


SCALE, SHIFT = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.2, 0.3, 0.4])


def softmax(x: Doubles) -> Doubles:
    exponentials = np.exp(x)
    return exponentials / exponentials.sum(-1, keepdims=True)


def standard(x: Doubles) -> Doubles:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.01)


def root_mean_square(x: Doubles) -> Doubles:
    return np.sqrt(np.square(x).mean(-1, keepdims=True) + 0.01)


NORMS: dict[str, Callable[[Doubles], Doubles]] = {
    "pebble.softmax %x": softmax,
    "pebble.log_softmax %x": lambda x: np.log(softmax(x)),
    "pebble.layer_norm %x scale %s bias %t epsilon 0.01": lambda x: standard(x) * SCALE + SHIFT,
    "pebble.layer_norm %x scale %s epsilon 0.01": lambda x: standard(x) * SCALE,
    "pebble.rms_norm %x scale %s epsilon 0.01": lambda x: x / root_mean_square(x) * SCALE,
}


@pytest.mark.parametrize("opset", [7, 11, 13, 17, 18, 21, 23])
@pytest.mark.parametrize("op", NORMS)
@pytest.mark.parametrize("rank", [2, 3])
def test_a_normalisation_is_written_for_every_opset(op: str, opset: int, rank: int) -> None:
    sizes = {2: "?x4", 3: "?x3x4"}[rank]
    value = f"tensor<{sizes}xf32>"
    extra = ", tensor<4xf32>" * (("%s" in op) + ("%t" in op))
    line = f"""
    %s = pebble.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
    %t = pebble.constant dense<[0.1, 0.2, 0.3, 0.4]> : tensor<4xf32>
    %y = {op} : ({value}{extra}) -> {value}
    """
    dims = {2: "float[N,4]", 3: "float[N,3,4]"}[rank]
    proto = exported(one_op(line, value, value), original_of(one_node(opset, dims, dims, version=10)))
    x = X if rank == 2 else DEEP
    np.testing.assert_allclose(answers(proto, {"x": x})[0], NORMS[op](x.astype(np.float64)), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "opset", "first"),
    [("layer_norm", 16, "ReduceMean"), ("layer_norm", 17, "LayerNormalization"), ("rms_norm", 22, "Pow"),
     ("rms_norm", 23, "RMSNormalization")],
)  # fmt: skip
def test_a_norm_is_one_operator_from_the_opset_that_has_it(op: str, opset: int, first: str) -> None:
    line = f"""
    %s = pebble.constant dense<1.0> : tensor<4xf32>
    %y = pebble.{op} %x scale %s epsilon 1.000000e-05 : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    """
    written = operators(exported(one_op(line, *["tensor<?x4xf32>"] * 2), original_of(one_node(opset, version=10))))
    assert written[0] == first


@pytest.mark.parametrize("opset", [7, 9, 13, 15, 21])
def test_batch_norm_and_mean_are_written_for_every_opset(opset: int) -> None:
    line = """
    %s = pebble.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
    %n = pebble.batch_norm %x scale %s bias %s mean %s variance %s epsilon 0.01
      : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    %y = pebble.reduce_mean %n : (tensor<?x4xf32>) -> tensor<?x1xf32>
    """
    original = original_of(one_node(opset, result="float[N,1]"))
    proto = exported(one_op(line, "tensor<?x4xf32>", "tensor<?x1xf32>"), original)
    expected = ((X - SCALE) / np.sqrt(SCALE + 0.01) * SCALE + SCALE).mean(-1, keepdims=True)
    np.testing.assert_allclose(answers(proto, {"x": X})[0], expected, rtol=1e-5)
    assert operators(proto) == ["BatchNormalization", "ReduceMean"]
    assert answers(proto, {"x": X[:0]})[0].shape == (0, 1)


@pytest.mark.parametrize(
    ("op", "ufunc"), [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)]
)
def test_an_elementwise_operator_of_two_operands_is_written(op: str, ufunc: np.ufunc) -> None:
    line = f"""
    %c = pebble.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
    %y = pebble.{op} %c, %x : (tensor<4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    """
    proto = exported(one_op(line, *["tensor<?x4xf32>"] * 2), original_of(one_node(7)))
    np.testing.assert_allclose(answers(proto, {"x": X})[0], ufunc(SCALE, X), rtol=1e-6)


def test_prelu_is_written_with_its_slope() -> None:
    line = """
    %c = pebble.constant dense<[[0.1], [0.2], [0.3]]> : tensor<3x1xf32>
    %y = pebble.prelu %x, %c : (tensor<?x3x4xf32>, tensor<3x1xf32>) -> tensor<?x3x4xf32>
    """
    original = original_of(one_node(9, "float[N,3,4]", "float[N,3,4]"))
    proto = exported(one_op(line, *["tensor<?x3x4xf32>"] * 2), original)
    expected = np.where(DEEP < 0, DEEP * np.array([[0.1], [0.2], [0.3]]), DEEP)
    np.testing.assert_allclose(answers(proto, {"x": DEEP})[0], expected, rtol=1e-6)


def test_a_tile_is_refused_by_name() -> None:
    line = """
    %y = pebble.tile %x rows_of [0] schedule <widths = [16]>
        : (tensor<?x4xf32>) -> tensor<?x4xf32> {
    ^bb0(%t : tensor<?x4xf32>):
      pebble.yield %t : tensor<?x4xf32>
    }
    """
    with pytest.raises(
        ValueError, match=r"expected an op with a form in onnx, one of pebble.linear, .*, got pebble.tile"
    ):
        exported(one_op(line, *["tensor<?x4xf32>"] * 2), original_of(one_node(13)))
