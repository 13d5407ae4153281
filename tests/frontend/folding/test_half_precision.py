"""Models in half precision compute in float32 and keep the types of their inputs and outputs."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import onnxruntime
import pytest

import redpebble
from redpebble.frontend.folding.half_precision import HALVES, widen
from redpebble.models.pruned_weights import random_weight
from redpebble.ort.any_model import session

KINDS = {"float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16}
WIDTH = 256


def two_layers(kind: str) -> onnx.ModelProto:
    """Two pruned layers with casts between them, a branch, and a constant in an attribute."""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g ({kind}[n,{WIDTH}] x, bool wanted) => ({kind}[n,{WIDTH}] y, {kind}[n,{WIDTH}] z) {{
            h = MatMul(x, w)
            f = Cast<to=1>(h)
            r = Relu(f)
            c = Cast<to={int(KINDS[kind])}>(r)
            y = MatMul(c, v)
            z = If (wanted) <
                then_branch = then () => ({kind}[n,{WIDTH}] t) {{ t = Add(c, h) }},
                else_branch = other () => ({kind}[n,{WIDTH}] e) {{ e = Identity(h) }}
            >
        }}
    """)
    rng = np.random.default_rng(0)
    for name in ("w", "v"):
        tensor = onnx.helper.make_tensor(name, KINDS[kind], (WIDTH, WIDTH), random_weight(WIDTH, WIDTH, 0.1, rng))
        proto.graph.initializer.append(tensor)
    return proto


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_inside_is_float32_and_the_edges_stay(kind: str) -> None:
    model = onnx_ir.from_proto(two_layers(kind))
    assert widen(model)
    half = onnx_ir.DataType(KINDS[kind])
    assert [value.dtype for value in (model.graph.inputs[0], *model.graph.outputs)] == [half] * 3
    assert [value.name for value in model.graph.outputs] == ["y", "z"]
    edges = {*model.graph.inputs, *model.graph.outputs}
    inside = [value for graph in model.graphs() for node in graph for value in node.outputs if value not in edges]
    assert not any(value.dtype in HALVES for value in (*inside, *model.graph.initializers.values()))
    onnx.checker.check_model(onnx_ir.to_proto(model), full_check=True)  # pyright: ignore[reportUnknownMemberType]


def test_a_model_in_float32_is_left_alone() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }'
    )
    assert not widen(onnx_ir.from_proto(proto))


@pytest.mark.parametrize("wanted", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_session_in_float16_agrees_within_its_precision(wanted: bool) -> None:
    proto = two_layers("float16")
    feeds = {
        "x": np.random.default_rng(1).standard_normal((7, WIDTH)).astype(np.float16),
        "wanted": np.array(wanted),
    }
    judge = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for expected, found in zip(judge.run(None, feeds), session(proto).run(None, feeds), strict=True):
        assert isinstance(expected, np.ndarray)
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


def test_layers_in_bfloat16_are_taken_which_onnxruntime_alone_cannot_run() -> None:
    assert len(redpebble.optimize(two_layers("bfloat16"), target="ort").networks) == 1


def test_a_model_without_layers_that_gain_stays_in_half_precision() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float16[n,4] x) => (float16[n,4] y) { y = Relu(x) }'
    )
    result = redpebble.optimize(proto, target="ort")
    assert not result.modified
    assert [node.op_type for node in result.model.graph] == ["Relu"]


def test_a_copy_is_widened_and_its_source_is_not() -> None:
    source = onnx_ir.from_onnx_text(
        '<ir_version: 9, opset_import: ["": 19]> g (float16[3] x) => (float16[3] y) { y = Relu(x) }'
    )
    before = onnx_ir.to_proto(source).SerializeToString()
    assert widen(source.clone())
    assert onnx_ir.to_proto(source).SerializeToString() == before


def test_what_is_widened_stays_as_it_is() -> None:
    model = onnx_ir.from_proto(two_layers("float16"))
    assert widen(model)
    assert not widen(model)


def test_casts_get_names_that_no_other_value_has() -> None:
    model = onnx_ir.from_onnx_text(
        '<ir_version: 9, opset_import: ["": 19]> g (float16[3] x) => (float16[3] y)'
        "{ x_as_float = Neg(x) y = Relu(x_as_float) }"
    )
    assert widen(model)
    names = [value.name for node in model.graph for value in node.outputs]
    assert len({*names}) == len(names)
