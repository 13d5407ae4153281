import numpy as np
import pytest

from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import Arrays, assert_agrees, model, normal

SAME = "(float[n,3,4] x) => (float[n,3,4] y)"
ROWS = "(float[n,4] x) => (float[n,4] y)"
MOMENTS: Arrays = {"s": normal(4), "b": normal(4, seed=1), "m": normal(4, seed=2), "v": np.abs(normal(4, seed=3)) + 0.1}

NORMALIZATIONS: dict[str, tuple[int, str, str, Arrays]] = {
    "Softmax, last": (13, SAME, "Softmax(x)", {}),
    "Softmax, axis 1": (13, SAME, "Softmax<axis=1>(x)", {}),
    "Softmax, axis 0": (13, "(float[3,n,4] x) => (float[3,n,4] y)", "Softmax<axis=0>(x)", {}),
    "Softmax, old default": (11, SAME, "Softmax(x)", {}),
    "Softmax, old axis 2": (11, SAME, "Softmax<axis=2>(x)", {}),
    "Softmax, old axis -1": (11, SAME, "Softmax<axis=-1>(x)", {}),
    "Softmax, rank 1": (13, "(float[4] x) => (float[4] y)", "Softmax(x)", {}),
    "LogSoftmax": (13, ROWS, "LogSoftmax(x)", {}),
    "LogSoftmax, old": (9, SAME, "LogSoftmax<axis=1>(x)", {}),
    "BatchNormalization": (15, ROWS, "BatchNormalization(x, s, b, m, v)", MOMENTS),
    "BatchNormalization, epsilon": (9, ROWS, "BatchNormalization<epsilon=0.1>(x, s, b, m, v)", MOMENTS),
    "BatchNormalization, spatial": (7, ROWS, "BatchNormalization<spatial=1>(x, s, b, m, v)", MOMENTS),
    "BatchNormalization, rank 3": (
        14,
        "(float[n,4,2] x) => (float[n,4,2] y)",
        "BatchNormalization(x, s, b, m, v)",
        MOMENTS,
    ),
    "LayerNormalization": (17, SAME, "LayerNormalization(x, s, b)", {"s": normal(4), "b": normal(4, seed=1)}),
    "LayerNormalization, no bias": (17, SAME, "LayerNormalization<epsilon=0.1>(x, s)", {"s": normal(4)}),
    "LayerNormalization, two axes": (
        17,
        SAME,
        "LayerNormalization<axis=1>(x, s, b)",
        {"s": normal(3, 4), "b": normal(3, 4, seed=1)},
    ),
    "LayerNormalization, scalar scale": (17, SAME, "LayerNormalization<axis=-2>(x, s)", {"s": normal(1)}),
    "RMSNormalization": (23, SAME, "RMSNormalization(x, s)", {"s": normal(4)}),
    "RMSNormalization, two axes": (23, SAME, "RMSNormalization<axis=1, epsilon=0.1>(x, s)", {"s": normal(3, 4)}),
    "SimplifiedLayerNormalization": (17, SAME, "SimplifiedLayerNormalization<epsilon=0.1>(x, s)", {"s": normal(4)}),
    "ReduceMean, last": (13, "(float[n,3,4] x) => (float[n,3,1] y)", "ReduceMean<axes=[-1]>(x)", {}),
    "ReduceMean, dropped": (11, "(float[n,3,4] x) => (float[n,3] y)", "ReduceMean<axes=[2], keepdims=0>(x)", {}),
    "ReduceMean, two axes": (18, "(float[n,3,4] x) => (float[n,1,1] y)", "ReduceMean(x, a)", {"a": np.array([1, 2])}),
    "ReduceMean, inner": (
        18,
        "(float[n,3,4] x) => (float[n,4] y)",
        "ReduceMean<keepdims=0>(x, a)",
        {"a": np.array([1])},
    ),
    "ReduceMean, inner kept": (18, "(float[n,3,4] x) => (float[n,1,4] y)", "ReduceMean(x, a)", {"a": np.array([1])}),
    "ReduceMean, pixels": (
        18,
        "(float[n,3,4,5] x) => (float[n,3,1,1] y)",
        "ReduceMean(x, a)",
        {"a": np.array([-1, -2])},
    ),
    "ReduceMean, pixels dropped": (
        13,
        "(float[n,3,4,5] x) => (float[n,3] y)",
        "ReduceMean<axes=[2, 3], keepdims=0>(x)",
        {},
    ),
    "ReduceMean, all": (18, "(float[2,3] x) => (float y)", "ReduceMean<keepdims=0>(x)", {}),
    "ReduceSum, tokens": (
        13,
        "(float[n,m,4] x) => (float[n,4] y)",
        "ReduceSum<keepdims=0>(x, a)",
        {"a": np.array([1])},
    ),
    "ReduceSum, kept": (11, "(float[n,m,4] x) => (float[n,1,4] y)", "ReduceSum<axes=[-2]>(x)", {}),
    "ReduceSum, last": (13, "(float[n,3,4] x) => (float[n,3] y)", "ReduceSum<keepdims=0>(x, a)", {"a": np.array([-1])}),
    "ReduceSum, first": (13, "(float[n,3,4] x) => (float[n,1,1] y)", "ReduceSum(x, a)", {"a": np.array([1, 2])}),
    "ReduceSum, pixels": (11, "(float[n,3,4,2] x) => (float[n,3] y)", "ReduceSum<axes=[2,3],keepdims=0>(x)", {}),
    "ReduceSum, of jax": (
        15,
        "(float[n,3,4] x) => (float[n,3] y)",
        "ReduceSum<keepdims=0,noop_with_empty_axes=1>(x, a)",
        {"a": np.array([2])},
    ),
    "ReduceMax, last": (13, "(float[n,3,4] x) => (float[n,3] y)", "ReduceMax<axes=[-1],keepdims=0>(x)", {}),
    "ReduceMax, first": (18, "(float[n,3,4] x) => (float[n,1,4] y)", "ReduceMax(x, a)", {"a": np.array([1])}),
    "ReduceMin, pixels": (11, "(float[n,3,4,2] x) => (float[n,3] y)", "ReduceMin<axes=[2,3],keepdims=0>(x)", {}),
    "ReduceMin, all but one": (11, "(float[n,3,4] x) => (float[n,1,1] y)", "ReduceMin<axes=[1,2]>(x)", {}),
    "ReduceL2": (18, "(float[n,4] x) => (float[n,1] y)", "ReduceL2(x, a)", {"a": np.array([1])}),
    "ReduceMean, none": (18, SAME, "ReduceMean<noop_with_empty_axes=1>(x)", {}),
}


SKIP = "com.microsoft.SkipLayerNormalization"
SIMPLE = "com.microsoft.SkipSimplifiedLayerNormalization"
PAIR = "(float[n,3,4] x, float[n,3,4] t) => (float[n,3,4] y)"
SUM = "(float[n,3,4] x, float[n,3,4] t) => (float[n,3,4] y, float[n,3,4] z)"
PARAMETERS: Arrays = {"s": normal(4), "b": normal(4, seed=1), "c": normal(4, seed=2)}

SKIPS: dict[str, tuple[str, str]] = {
    "SkipLayerNormalization": (PAIR, f"y = {SKIP}(x, t, s)"),
    "SkipLayerNormalization, epsilon and shift": (PAIR, f"y = {SKIP}<epsilon=0.1>(x, t, s, b)"),
    "SkipLayerNormalization, bias alone": (PAIR, f"y = {SKIP}(x, t, s, , c)"),
    "SkipLayerNormalization, all, and the sum": (SUM, f"y, , , z = {SKIP}(x, t, s, b, c)"),
    "SkipLayerNormalization, a row for all": (
        "(float[n,3,4] x, float[3,4] t) => (float[n,3,4] y)",
        f"y = {SKIP}(x, t, s, b)",
    ),
    "SkipSimplifiedLayerNormalization": (PAIR, f"y = {SIMPLE}(x, t, s)"),
    "SkipSimplifiedLayerNormalization, the sum": (SUM, f"y, , , z = {SIMPLE}<epsilon=0.1>(x, t, s)"),
    "SkipSimplifiedLayerNormalization, bias and the sum": (SUM, f"y, , , z = {SIMPLE}(x, t, s, c)"),
    "SkipSimplifiedLayerNormalization, rank 2": (
        "(float[n,4] x, float[n,4] t) => (float[n,4] y)",
        f"y = {SIMPLE}(x, t, s)",
    ),
}


@pytest.mark.parametrize("name", SKIPS)
def test_a_normalized_sum_agrees(name: str) -> None:
    signature, nodes = SKIPS[name]
    used = {one: array for one, array in PARAMETERS.items() if f", {one}" in nodes}
    assert_agrees(model(signature, nodes, weights=used), sizes=(0, 1, 3))


@pytest.mark.parametrize(
    ("outputs", "given", "message"),
    [
        ("y, mean", "x, t, s", "expected the result and the sum alone to be read, got mean"),
        ("y", "x, t, d", "expected a constant float parameter as input 2, got another value"),
        ("y", "x, e, s", "expected two values of one shape, got n x 3 x 4 and 2 x n x 3 x 4"),
    ],
)
def test_a_normalized_sum_that_is_not_covered_is_refused(outputs: str, given: str, message: str) -> None:
    signature = "(float[n,3,4] x, float[n,3,4] t, float[2,n,3,4] e, float[4] d) => (float[n,3,4] y"
    signature += ", float[n,3,1] mean)" if "mean" in outputs else ")"
    proto = model(signature, f"[op] {outputs} = {SIMPLE}({given})", weights=PARAMETERS)
    with pytest.raises(UnsupportedModelError) as refusal:
        import_model(proto, foreign="refuse")
    label = "node 'op': operator SkipSimplifiedLayerNormalization (com.microsoft 1)"
    assert str(refusal.value) == f"{label}: {message}"


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_a_normalization_agrees(name: str) -> None:
    opset, signature, node, weights = NORMALIZATIONS[name]
    assert_agrees(model(signature, f"y = {node}", opset=opset, weights=weights))


@pytest.mark.parametrize(
    ("opset", "node", "message"),
    [
        (13, "Softmax<axis=0>(x)", "expected known sizes from axis 0 on, got an input n"),
        (11, "Softmax<axis=0>(x)", "expected known sizes from axis 0 on, got an input n x 4"),
        (15, "BatchNormalization<training_mode=1>(x, s, b, m, v)", "expected training_mode=0, got 1"),
        (7, "BatchNormalization<spatial=0>(x, s, b, m, v)", "expected spatial=1, got 0"),
        (15, "BatchNormalization(x, d, b, m, v)", "expected a constant float parameter as input 1, got another value"),
        (17, "LayerNormalization<stash_type=16>(x, s)", "expected stash_type=1, got 16"),
        (17, "LayerNormalization<axis=0>(x, s)", "expected known sizes from axis 0 on, got an input n x 4"),
        (18, "ReduceMean(x, a)", "expected constant axes, got axes computed from values"),
        (18, "ReduceMean<keepdims=0>(x)", "expected known sizes from axis 0 on, got an input n x 4"),
    ],
)
def test_a_normalization_that_is_not_covered_is_refused(opset: int, node: str, message: str) -> None:
    signature = "(float[n,4] x, float[4] d, int64[1] a) => (float[n,4] y)"
    outputs = "y, mean, var" if "training" in node else "y"
    proto = model(signature, f"[op] {outputs} = {node}", opset=opset, weights=MOMENTS)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedModelError) as refusal:
        import_model(proto, foreign="refuse")
    operator = node.partition("(")[0].partition("<")[0]
    assert str(refusal.value) == f"node 'op': operator {operator} (ai.onnx {opset}): {message}"


def test_a_layer_normalization_whose_mean_is_used_is_refused() -> None:
    proto = model(
        "(float[n,4] x) => (float[n,4] y, float[n,1] mean)",
        "y, mean = LayerNormalization(x, s)",
        weights={"s": normal(4)},
    )
    with pytest.raises(UnsupportedModelError, match=r"expected only output 0 to be used, got output 1 \(mean\)$"):
        import_model(proto, foreign="refuse")
