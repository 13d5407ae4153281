import numpy as np
import pytest

from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.movement import ReshapeOp
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import Arrays, assert_agrees, imported, model, normal

MATMULS = {
    "rows times matrix": ("(float[n,4] x) => (float[n,3] y)", "MatMul(x, w)", (4, 3)),
    "vector times matrix": ("(float[4] x) => (float[3] y)", "MatMul(x, w)", (4, 3)),
    "batch times matrix": ("(float[n,5,4] x) => (float[n,5,3] y)", "MatMul(x, w)", (4, 3)),
    "rank 4 times matrix": ("(float[n,2,n,4] x) => (float[n,2,n,3] y)", "MatMul(x, w)", (4, 3)),
    "rows times vector": ("(float[n,4] x) => (float[n] y)", "MatMul(x, w)", (4,)),
    "vector times vector": ("(float[4] x) => (float y)", "MatMul(x, w)", (4,)),
    "batch times vector": ("(float[n,5,4] x) => (float[n,5] y)", "MatMul(x, w)", (4,)),
    "rows times stack": ("(float[n,4] x) => (float[2,n,3] y)", "MatMul(x, w)", (2, 4, 3)),
    "vector times stack": ("(float[4] x) => (float[2,3] y)", "MatMul(x, w)", (2, 4, 3)),
    "batch times stack": ("(float[2,n,4] x) => (float[2,n,3] y)", "MatMul(x, w)", (2, 4, 3)),
    "one times stack": ("(float[1,n,4] x) => (float[2,n,3] y)", "MatMul(x, w)", (2, 4, 3)),
    "batch times single": ("(float[n,5,4] x) => (float[n,5,3] y)", "MatMul(x, w)", (1, 4, 3)),
    "batch of heads times stack": ("(float[n,2,5,4] x) => (float[n,2,5,3] y)", "MatMul(x, w)", (2, 4, 3)),
    "rank 3 times rank 5": ("(float[2,n,4] x) => (float[3,1,2,n,3] y)", "MatMul(x, w)", (3, 1, 2, 4, 3)),
    "matrix times columns": ("(float[4,n] x) => (float[3,n] y)", "MatMul(w, x)", (3, 4)),
    "matrix times vector": ("(float[4] x) => (float[3] y)", "MatMul(w, x)", (3, 4)),
    "matrix times batch": ("(float[n,4,5] x) => (float[n,3,5] y)", "MatMul(w, x)", (3, 4)),
    "vector times columns": ("(float[4,n] x) => (float[n] y)", "MatMul(w, x)", (4,)),
    "vector from the left": ("(float[4] x) => (float y)", "MatMul(w, x)", (4,)),
    "vector times batch": ("(float[n,4,5] x) => (float[n,5] y)", "MatMul(w, x)", (4,)),
    "stack times columns": ("(float[4,n] x) => (float[2,3,n] y)", "MatMul(w, x)", (2, 3, 4)),
    "stack times batch": ("(float[2,4,n] x) => (float[2,3,n] y)", "MatMul(w, x)", (2, 3, 4)),
    "stack times vector": ("(float[4] x) => (float[2,3] y)", "MatMul(w, x)", (2, 3, 4)),
}

GEMMS: dict[str, tuple[str, str, Arrays]] = {
    "plain": ("float[n,4]", "Gemm(x, w)", {}),
    "bias [N]": ("float[n,4]", "Gemm(x, w, c)", {"c": normal(3)}),
    "bias [1,N]": ("float[n,4]", "Gemm(x, w, c)", {"c": normal(1, 3)}),
    "bias scalar": ("float[n,4]", "Gemm(x, w, c)", {"c": np.array(0.5, np.float32)}),
    "bias [1]": ("float[n,4]", "Gemm(x, w, c)", {"c": normal(1)}),
    "bias [1,1]": ("float[n,4]", "Gemm(x, w, c)", {"c": normal(1, 1)}),
    "bias [M,1]": ("float[5,4]", "Gemm(x, w, c)", {"c": normal(5, 1)}),
    "bias [M,N]": ("float[5,4]", "Gemm<beta=0.5>(x, w, c)", {"c": normal(5, 3)}),
    "alpha and beta": ("float[n,4]", "Gemm<alpha=0.7, beta=1.3>(x, w, c)", {"c": normal(3)}),
    "beta 0": ("float[n,4]", "Gemm<beta=0.0>(x, w, c)", {"c": np.full(3, np.nan, np.float32)}),
    "transB": ("float[n,4]", "Gemm<transB=1>(x, wt, c)", {"c": normal(3)}),
    "transA": ("float[4,n]", "Gemm<transA=1>(x, w, c)", {"c": normal(3)}),
    "transA and transB": ("float[4,n]", "Gemm<transA=1, transB=1, alpha=2.0>(x, wt, c)", {"c": normal(3)}),
}


@pytest.mark.parametrize("name", MATMULS)
def test_matmul_with_a_constant_agrees(name: str) -> None:
    signature, node, shape = MATMULS[name]
    assert_agrees(model(signature, f"y = {node}", weights={"w": normal(*shape)}))


@pytest.mark.parametrize(
    ("name", "opset"), [(name, opset) for name in GEMMS for opset in (7, 11, 13) if opset >= 11 or name != "plain"]
)
def test_gemm_with_a_constant_agrees(name: str, opset: int) -> None:
    kind, node, addend = GEMMS[name]
    if opset < 11 and not addend:
        pytest.skip("C is required before opset 11")
    weights = {"w": normal(4, 3), "wt": normal(3, 4), **addend}
    rows = 5 if kind == "float[5,4]" else "n"
    assert_agrees(model(f"({kind} x) => (float[{rows},3] y)", f"y = {node}", opset=opset, weights=weights))


@pytest.mark.parametrize("node", ["Gemm(w, x, c)", "Gemm<transA=1>(wt, x, c)", "Gemm<transB=1, beta=2.0>(w, xt, c)"])
def test_gemm_with_the_constant_on_the_left_agrees(node: str) -> None:
    weights = {"w": normal(3, 4), "wt": normal(4, 3), "c": normal(3, 1)}
    assert_agrees(
        model(
            "(float[4,n] x, float[n,4] xt) => (float[3,n] y, float[n,4] z)", f"y = {node} z = Relu(xt)", weights=weights
        )
    )


@pytest.mark.parametrize("addend", ["float[n,3]", "float[1,3]", "float[3]", "float[n,1]", "float"])
def test_gemm_with_a_computed_addend_agrees(addend: str) -> None:
    signature = f"(float[n,4] x, {addend} c) => (float[n,3] y)"
    assert_agrees(model(signature, "y = Gemm<beta=0.5>(x, w, c)", weights={"w": normal(4, 3)}))


def test_one_constant_row_becomes_the_bias() -> None:
    module = imported(
        model("(float[n,4] x) => (float[n,3] y)", "y = Gemm(x, w, c)", weights={"w": normal(4, 3), "c": normal(1, 3)})
    )
    (layer,) = (op for op in module.walk() if isinstance(op, LinearOp))
    assert layer.bias is not None


def test_a_weight_used_twice_is_one_constant() -> None:
    module = imported(
        model("(float[n,4] x) => (float[n,4] y)", "h = MatMul(x, w) y = MatMul(h, w)", weights={"w": normal(4, 4)})
    )
    assert str(module).count("pebble.constant") == 1


def test_nan_and_inf_in_weights_are_values() -> None:
    weight = normal(4, 3)
    weight[0, 0], weight[1, 1] = np.nan, np.inf
    assert_agrees(model("(float[n,4] x) => (float[n,3] y)", "y = MatMul(x, w)", weights={"w": weight}))


@pytest.mark.parametrize(
    ("signature", "node", "shape", "message"),
    [
        (
            "(float[n,4] x, float[4,3] v) => (float[n,3] y)",
            "MatMul(x, v)",
            (1,),
            "node 'fc': operator MatMul (ai.onnx 21): expected a constant weight, got two computed operands",
        ),
        (
            "(float[n,m,4] x) => (float[n,m,3] y)",
            "MatMul(x, w)",
            (2, 4, 3),
            "node 'fc': operator MatMul (ai.onnx 21): expected 1 or the weight's 2 as axis 0 of the activation, got n",
        ),
        (
            "(float[1,n,4] x) => (float[300,n,3] y)",
            "MatMul(x, w)",
            (300, 4, 3),
            "node 'fc': operator MatMul (ai.onnx 21): expected at most 256 matrices in weight w, got 300",
        ),
        (
            "(float[n,4] x, float[4,3] v) => (float[n,3] y)",
            "Gemm(x, v)",
            (1,),
            "node 'fc': operator Gemm (ai.onnx 21): "
            "expected a constant weight, got computed A and B, or a rank other than 2",
        ),
        (
            "(float[n,4] x, float[m,3] c) => (float[n,3] y)",
            "Gemm(x, w, c)",
            (4, 3),
            "node 'fc': operator Gemm (ai.onnx 21): "
            "expected sizes that are equal by number or name, or 1, got operands n x 3 and m x 3",
        ),
    ],
)
def test_a_product_that_is_not_covered_is_refused(
    signature: str, node: str, shape: tuple[int, ...], message: str
) -> None:
    proto = model(signature, f"[fc] y = {node}", weights={"w": normal(*shape)})
    with pytest.raises(UnsupportedModelError) as refusal:
        import_model(proto, foreign="refuse")
    assert str(refusal.value) == message


def test_rows_that_are_flattened_for_a_gemm_and_given_their_axes_back_are_never_reshaped() -> None:
    proto = model(
        "(float[batch,sequence,4] x) => (float[batch,sequence,3] y)",
        """s = Shape(x) lead = Slice(s, zero, two) rows = Concat<axis=0>(open, four) back = Concat<axis=0>(lead, three)
        flat = Reshape(x, rows) g = Gemm(flat, w, b) y = Reshape(g, back)""",
        weights={
            "w": normal(4, 3),
            "b": normal(3),
            "zero": np.array([0]),
            "two": np.array([2]),
            "open": np.array([-1]),
            "four": np.array([4]),
            "three": np.array([3]),
        },
    )
    for foreign in ("keep", "refuse"):
        module = import_model(proto, foreign=foreign).module
        assert not any(isinstance(op, ReshapeOp | ForeignOp) for op in module.walk())
    assert_agrees(proto)
