"""The work of nodes, for a batch of one and 128 of any other free axis."""

import numpy as np
import onnx_ir
import pytest

from redpebble.frontend.multiply_adds import LONG, NodeWork, work_of_nodes
from tests.frontend.import_oracle import Arrays, model, normal

WEIGHTS: Arrays = {
    "w": normal(4, 3),
    "k": normal(6, 2, 3, 3),
    "t": normal(2, 6, 2, 2),
    "l": normal(1, 20, 4),
    "r": normal(1, 20, 5),
    "open": np.array([-1, 4]),
    "last": np.array(2),
}


@pytest.mark.parametrize(
    ("signature", "nodes", "multiply_adds"),
    [
        ("(float[n,m,4] x) => (float[n,m,3] y)", "y = MatMul(x, w)", LONG * 4 * 3),
        ("(float[n,4] x) => (float[n,3] y)", "y = Gemm(x, w)", 4 * 3),
        ("(float[4,m] x) => (float[m,3] y)", "y = Gemm<transA=1>(x, w)", LONG * 4 * 3),
        ("(float[n,2,8,8] x) => (float[n,6,6,6] y)", "y = Conv(x, k)", 6 * 36 * 2 * 9),
        ("(float[n,2,8,8] x) => (float[n,6,16,16] y)", "y = ConvTranspose<strides=[2,2]>(x, t)", 2 * 64 * 6 * 4),
        ("(float[7,3,4] x) => (float[7,1,3,5] y)", "y = LSTM<hidden_size=5>(x, l, r)", 7 * 3 * 20 * 9),
        ("(float[n,m,4] x) => (float[n,m,3] y)", "f = Reshape(x, open) y = MatMul(f, w)", LONG * 4 * 3),
    ],
)
def test_what_a_node_multiplies_is_counted(signature: str, nodes: str, multiply_adds: int) -> None:
    proto = model(signature, nodes, opset=17, weights=WEIGHTS)
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    found = work_of_nodes(onnx_ir.from_proto(proto))
    assert {*found} == {"y"}
    assert (found["y"].multiply_adds, found["y"].is_linear) == (multiply_adds, True)
    assert found["y"].weights > 0


def test_a_product_of_activations_is_work_without_weights() -> None:
    proto = model("(float[n,m,4] x) => (float[n,m,m] y)", "t = Transpose<perm=[0,2,1]>(x) y = MatMul(x, t)")
    assert work_of_nodes(onnx_ir.from_proto(proto)) == {"y": NodeWork(LONG * LONG * 4, is_linear=False)}


def test_what_depends_on_values_is_left_out() -> None:
    proto = model(
        "(float[n,m,4] x, int64[2] shape) => (float[a,3] y)", "h = Reshape(x, shape) y = MatMul(h, w)", weights=WEIGHTS
    )
    assert work_of_nodes(onnx_ir.from_proto(proto)) == {}
