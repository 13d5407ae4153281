import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.provenance import value_name
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import Arrays, assert_agrees, imported, model, normal

X = "(float[n,4] x) => (float[n,3] y)"
MASK = (normal(4, 3, seed=1) > 0).astype(np.float32)

WEIGHT_ONLY: dict[str, tuple[str, Arrays]] = {
    "mask": ("w = Mul(v, mask) y = MatMul(x, w)", {"v": normal(4, 3), "mask": MASK}),
    "boolean mask": (
        "w = Where(mask, v, zero) y = MatMul(x, w)",
        {"v": normal(4, 3), "mask": MASK > 0, "zero": np.zeros((), np.float32)},
    ),
    "cast and transpose": (
        "m = Cast<to=1>(mask) w1 = Mul(v, m) w = Transpose(w1) y = MatMul(x, w)",
        {"v": normal(3, 4), "mask": (MASK.T > 0).astype(np.int8)},
    ),
    "half precision": ("w = Cast<to=1>(v) y = MatMul(x, w)", {"v": normal(4, 3).astype(np.float16)}),
    "quantized": (
        "w = DequantizeLinear(v, scale, zero) y = MatMul(x, w)",
        {
            "v": np.arange(12, dtype=np.int8).reshape(4, 3),
            "scale": np.array(0.1, np.float32),
            "zero": np.array(3, np.int8),
        },
    ),
    "scattered": (
        "zeros = ConstantOfShape(shape) w = ScatterElements(zeros, places, v) y = MatMul(x, w)",
        {
            "shape": np.array([4, 3]),
            "places": np.array([[2, 1, 0], [3, 0, 2]]),
            "v": normal(2, 3),
        },
    ),
    "reshaped by its shape": (
        "s = Shape(like) w = Reshape(v, s) y = MatMul(x, w)",
        {"v": normal(12), "like": normal(4, 3, seed=5)},
    ),
    "constants": (
        "w = Constant<value = float[4,3] {1,2,3,4,5,6,7,8,9,10,11,12}>() b = Constant<value_floats = [1., 2., 3.]>() "
        "c = Constant<value_float = 0.5>() h = MatMul(x, w) d = Mul(b, c) y = Add(h, d)",
        {},
    ),
    "product": ("w0 = Mul(v, mask) w = MatMul(w0, u) y = MatMul(x, w)", {
        "v": normal(4, 4096), "mask": (normal(4, 4096, seed=1) > 0).astype(np.float32), "u": normal(4096, 3)
    }),
    "split": ("w, rest = Split<axis=1, num_outputs=2>(v) y = MatMul(x, w)", {"v": normal(4, 6)}),
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHT_ONLY)
def test_what_depends_on_weights_alone_becomes_a_weight(name: str) -> None:
    nodes, weights = WEIGHT_ONLY[name]
    proto = model(X, nodes, weights=weights)
    (judged,) = [proto] if name != "product" else [with_small_numbers(proto)]
    assert_agrees(judged)
    assert len(list(import_model(proto, foreign="refuse").model.graph)) == (2 if name == "constants" else 1)


def with_small_numbers(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Scale the weights, so that sums of thousands of products do not lose digits in another order."""
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor) / np.float32(64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return proto


def test_a_folded_weight_keeps_its_name() -> None:
    module = imported(model(X, "w = Mul(v, mask) y = MatMul(x, w)", weights={"v": normal(4, 3), "mask": MASK}))
    assert [value_name(op.result) for op in module.walk() if isinstance(op, ConstantOp)] == ["w"]


def test_initializers_that_only_made_a_weight_are_gone() -> None:
    proto = model(X, "w = Mul(v, mask) y = MatMul(x, w)", weights={"v": normal(4, 3), "mask": MASK})
    assert list(import_model(proto, foreign="keep").model.graph.initializers) == ["w"]


def test_a_weight_only_output_is_a_constant() -> None:
    proto = model(
        "(float[n,4] x) => (float[n,4] y, float[4,3] w)",
        "y = Relu(x) w = Mul(v, mask)",
        weights={"v": normal(4, 3), "mask": MASK},
    )
    assert_agrees(proto)


@pytest.mark.parametrize("node", ["RandomNormal<shape=[4,3]>()", "RandomUniformLike(v)", "Bernoulli(mask)"])
def test_random_weights_are_not_folded(node: str) -> None:
    proto = model(X, f"[dice] w = {node} y = MatMul(x, w)", weights={"v": normal(4, 3), "mask": MASK})
    with pytest.raises(UnsupportedModelError, match=r"^node 'dice': operator \w+ \(ai.onnx 21\) is not covered"):
        import_model(proto, foreign="refuse")


def test_a_node_that_nothing_here_can_run_does_not_keep_others_from_being_folded() -> None:
    nodes = "[odd] strange = com.microsoft.Unheard(v) w = Mul(v, mask) h = MatMul(x, w) y = Add(h, strange)"
    proto = model(X, nodes, weights={"v": normal(4, 3), "mask": MASK})
    kept = [node.op_type for node in import_model(proto, foreign="keep").model.graph]
    assert kept == ["Unheard", "MatMul", "Add"]
    with pytest.raises(
        UnsupportedModelError, match=r"^node 'odd': operator Unheard \(com.microsoft 1\) is not covered"
    ):
        import_model(proto, foreign="refuse")


def test_a_constant_that_only_kept_nodes_read_is_folded_where_it_does_not_grow() -> None:
    weights = {"v": normal(8, 4, 1, 1), "mask": (normal(8, 4, 1, 1, seed=1) > 0).astype(np.float32)}
    proto = model("(float[n,4,5,5] x) => (float[n,8,5,5] y)", "w = Mul(v, mask) y = Conv(x, w)", weights=weights)
    assert list(import_model(proto, foreign="keep").model.graph.initializers) == ["w"]


def test_a_constant_that_only_kept_nodes_read_is_not_folded_where_it_grows() -> None:
    nodes = "[make] w = ConstantOfShape<value = float[1] {0.5}>(shape) [conv] y = Conv(x, w)"
    weights = {"shape": np.array([64, 64, 3, 3])}
    proto = model("(float[n,64,9,9] x) => (float[n,64,7,7] y)", nodes, weights=weights)
    result = import_model(proto, foreign="keep")
    assert [node.name for node in result.model.graph] == ["make", "conv"]
    assert '"ai.onnx::Conv" at 1 reads %x, %w as ["x", "w"]' in str(result.module)


def test_a_constant_that_grows_is_folded_where_a_layer_reads_it() -> None:
    nodes = "w = ConstantOfShape<value = float[1] {0.5}>(shape) y = MatMul(x, w)"
    proto = model("(float[n,64] x) => (float[n,64] y)", nodes, weights={"shape": np.array([64, 64])})
    assert [node.op_type for node in import_model(proto, foreign="keep").model.graph] == ["MatMul"]


def test_quantized_weights_stay_where_nodes_may_stay() -> None:
    nodes, weights = WEIGHT_ONLY["quantized"]
    kept = import_model(model(X, nodes, weights=weights), foreign="keep").model.graph
    assert [node.op_type for node in kept] == ["DequantizeLinear", "MatMul"]


def test_an_initializer_that_a_caller_may_override_is_no_constant() -> None:
    proto = model(
        "(float[n,4] x, float[4,3] w) => (float[n,3] y)", "[fc] y = MatMul(x, w)", weights={"w": normal(4, 3)}
    )
    message = r"^node 'fc': operator MatMul \(ai.onnx 21\): expected initializer w to be no graph input"
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(proto, foreign="refuse")
    kept = str(import_model(proto, foreign="keep").module)
    assert '"ai.onnx::MatMul" at 0 reads %x, %w as ["x", "w"]' in kept


def test_before_ir_version_4_every_initializer_is_a_constant() -> None:
    signature = "(float[n,4] x, float[4,3] w) => (float[n,3] y)"
    proto = model(signature, "y = MatMul(x, w)", opset=7, ir_version=3, weights={"w": normal(4, 3)})
    assert_agrees(proto)
    assert len(list(import_model(proto, foreign="keep").model.graph.inputs)) == 2
