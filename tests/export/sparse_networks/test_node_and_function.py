"""Sparse networks as ONNX: every tool takes the file, nothing around them changes, and equal ones share a function."""

from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import redpebble
from redpebble.export.sparse_networks.node_format import DOMAIN
from tests.export.export_oracle import answers
from tests.support.sparse_network_models import attributes_of, network_nodes, run_natively, with_networks

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'

MLP = (
    HEAD
    + """ mlp (float[batch,16] x) => (float[batch,12] y) <float[batch,20] a, float[batch,20] b> {
    [fc1] a = Gemm<transB = 1>(x, W1, B1)
    [relu] b = Relu(a)
    [fc2] y = MatMul(b, W2)
}"""
)
MLP_WEIGHTS = {"W1": (20, 16), "B1": (20,), "W2": (20, 12)}

TWINS = (
    HEAD
    + """ twins (float[batch,seq,16] x) => (float[batch,seq,16] y, float[batch,seq,16] h) {
    [fc1] a = MatMul(x, W1)
    [add1] b = Add(a, B1)
    [cos] c = Cos(b)
    [fc2] d = MatMul(c, W2)
    [add2] h = Add(d, B2)
    [sin] y = Sin(h)
}"""
)
TWIN_WEIGHTS = {"W1": (16, 16), "B1": (16,), "W2": (16, 16), "B2": (16,)}


def proto_of(text: str, weights: dict[str, tuple[int, ...]], density: float = 0.2) -> onnx.ModelProto:
    """The model with weights of which every row and column has connections, so that no neuron is dead."""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(5)
    for name, shape in weights.items():
        mask = rng.random(shape) < density
        for index in range(max(shape)):
            mask[tuple(index % size for size in shape)] = True
        array = rng.standard_normal(shape) * (mask if len(shape) > 1 else 1)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return model


def in_networks(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with sparse networks, after ONNX's checker and strict shape inference have accepted it."""
    proto = ir.to_proto(with_networks(model))
    onnx.checker.check_model(proto, full_check=True)  # pyright: ignore[reportUnknownMemberType]
    return proto


def normal(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_a_whole_mlp_becomes_one_node_that_computes_the_same_bits_in_onnxruntime() -> None:
    model = proto_of(MLP, MLP_WEIGHTS)
    proto = in_networks(model)
    assert [node.domain for node in proto.graph.node] == [DOMAIN]
    for batch in (0, 1, 7):
        (expected,), (found,) = (answers(each, {"x": normal(batch, 16)}) for each in (model, proto))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_native_code_from_the_node_alone_computes_the_same() -> None:
    model = proto_of(MLP, MLP_WEIGHTS)
    proto = in_networks(model)
    for batch in (0, 1, 7, 17):
        (expected,) = answers(model, {"x": normal(batch, 16)})
        (found,) = run_natively(proto, {"x": normal(batch, 16)})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_reference_evaluator_and_the_inliner_take_the_file() -> None:
    model = proto_of(TWINS, TWIN_WEIGHTS)
    proto = in_networks(model)
    feeds = {"x": normal(2, 3, 16)}
    expected = answers(model, feeds)
    inlined = onnx.inliner.inline_local_functions(proto)
    assert not inlined.functions
    assert not network_nodes(inlined)
    by_reference = ReferenceEvaluator(proto).run(None, feeds)  # pyright: ignore[reportUnknownMemberType]
    for found in ([np.asarray(value) for value in by_reference], answers(inlined, feeds)):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_onnxruntime_holds_the_dense_matrix_after_loading(tmp_path: Path) -> None:
    proto = in_networks(proto_of(MLP, MLP_WEIGHTS))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    loaded = onnx.ModelProto.FromString((tmp_path / "loaded.onnx").read_bytes())
    assert {node.op_type for node in loaded.graph.node} <= {"Gemm", "MatMul", "Relu", "FusedGemm"}


def test_networks_with_equal_bodies_share_a_function() -> None:
    proto = in_networks(proto_of(TWINS, TWIN_WEIGHTS))
    first, second = network_nodes(proto)
    assert first.op_type == second.op_type
    assert [function.name for function in proto.functions] == [first.op_type]
    one, two = attributes_of(first), attributes_of(second)
    assert one["network"] == two["network"]
    assert one["digest"] != two["digest"]


def test_networks_with_different_bodies_have_functions_of_their_own() -> None:
    proto = in_networks(
        proto_of(TWINS.replace("MatMul(c, W2)", "MatMul(c, W2)").replace("h = Add(d, B2)", "h = Relu(d)"), TWIN_WEIGHTS)
    )
    assert sorted(node.op_type for node in network_nodes(proto)) == ["SparseNetwork_0", "SparseNetwork_1"]
    assert len(proto.functions) == 2


def test_a_weight_that_two_networks_share_is_stored_once() -> None:
    model = proto_of(
        TWINS.replace("MatMul(c, W2)", "MatMul(c, W1)"), {name: TWIN_WEIGHTS[name] for name in ("W1", "B1", "B2")}
    )
    proto = in_networks(model)
    first, second = network_nodes(proto)
    assert {*first.input} & {*second.input} == {"W1.values", "W1.gaps"}


def test_versions_names_sizes_and_descriptions_stay() -> None:
    model = proto_of(TWINS, TWIN_WEIGHTS)
    model.doc_string, model.producer_name = "a model", "someone"
    model.metadata_props.add(key="licence", value="none")
    model.graph.input[0].doc_string = "tokens"
    model.graph.initializer[0].doc_string = "first weight"
    proto = in_networks(model)
    assert proto.ir_version == model.ir_version
    assert {entry.domain: entry.version for entry in proto.opset_import} == {"": 17, DOMAIN: 1}
    assert {entry.version for function in proto.functions for entry in function.opset_import} == {17}
    assert (proto.doc_string, proto.producer_name) == ("a model", "someone")
    assert proto.metadata_props == model.metadata_props
    assert proto.graph.name == "twins"
    assert proto.graph.input == model.graph.input
    assert proto.graph.output == model.graph.output
    assert [node.name for node in proto.graph.node] == ["fc1", "cos", "fc2", "sin"]
    assert [list(node.output) for node in proto.graph.node] == [["b"], ["c"], ["h"], ["y"]]


def older(ir_version: int, opset: int) -> onnx.ModelProto:
    """The MLP as old exporters write it: up to IR version 3 every initializer is an input, too."""
    text = MLP.replace("ir_version: 8", f"ir_version: {ir_version}").replace(": 17]", f": {opset}]")
    model = proto_of(text, MLP_WEIGHTS)
    if ir_version == 3:
        types = {
            name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in MLP_WEIGHTS.items()
        }
        model.graph.input.extend(types.values())
    return model


@pytest.mark.parametrize("ir_version", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("opset", [11, 12, 13])
def test_networks_raise_the_ir_version_of_a_model_and_change_nothing_else(ir_version: int, opset: int) -> None:
    model = older(ir_version, opset)
    proto = in_networks(model)
    assert [node.domain for node in proto.graph.node] == [DOMAIN]
    assert (proto.ir_version, proto.opset_import[0].version) == (8, opset)
    (expected,), (found,) = (answers(each, {"x": normal(7, 16)}) for each in (model, proto))
    np.testing.assert_array_equal(found, expected)


def test_what_callers_could_not_replace_before_they_cannot_replace_with_a_raised_version() -> None:
    """From IR version 4 on an initializer that is also an input is a default: of version 3 it is an input no more."""
    model = older(3, 11)
    before, after = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"])
        for each in (model, in_networks(model))
    )
    for session in (before, after):
        assert [value.name for value in session.get_inputs()] == ["x"]
        assert not session.get_overridable_initializers()


def test_what_callers_could_replace_they_can_replace_with_a_raised_version() -> None:
    text = MLP.replace("ir_version: 8", "ir_version: 6").replace(": 17]", ": 11]").replace("Relu(a)", "Add(a, C)")
    model = proto_of(text, {**MLP_WEIGHTS, "C": (20,)})
    model.graph.input.append(helper.make_tensor_value_info("C", TensorProto.FLOAT, (20,)))
    proto = in_networks(model)
    assert proto.ir_version == 8
    assert network_nodes(proto)
    for feeds in ({"x": normal(3, 16)}, {"x": normal(3, 16), "C": normal(20)}):
        (expected,), (found,) = (answers(each, feeds) for each in (model, proto))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_model_without_networks_keeps_its_ir_version() -> None:
    text = MLP.replace("ir_version: 8", "ir_version: 6").replace(": 17]", ": 11]")
    result = redpebble.optimize(proto_of(text, MLP_WEIGHTS, density=1.0), target="ort")
    assert (len(result.networks), result.model.ir_version) == (0, 6)


@pytest.mark.parametrize("opset", [7, 8, 9, 10])
def test_a_model_of_an_older_opset_is_raised(opset: int) -> None:
    result = redpebble.optimize(older(4, opset), target="ort")
    assert not result.obstacle
    assert result.networks
    assert (result.model.opset_imports[""], result.model.ir_version) == (11, 8)
    feeds = {"x": normal(3, 16)}
    (expected,), (found,) = (answers(each, feeds) for each in (older(4, opset), result.proto))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_model_without_sparse_layers_says_so() -> None:
    result = redpebble.optimize(proto_of(MLP, MLP_WEIGHTS, density=1.0), target="ort")
    assert result.obstacle == "all layers are dense, with 0 % zeros at most; redpebble prune makes more"


def test_a_model_that_has_networks_already_is_left_as_it_is() -> None:
    once = in_networks(proto_of(TWINS, TWIN_WEIGHTS))
    again = in_networks(once)
    assert again.graph.node == once.graph.node
    assert again.functions == once.functions


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_bodies_run_at_the_opset_of_the_model(opset: int) -> None:
    text = MLP.replace(": 17]", f": {opset}]")
    model = proto_of(text, MLP_WEIGHTS)
    proto = in_networks(model)
    (expected,), (found,) = (answers(each, {"x": normal(3, 16)}) for each in (model, proto))
    np.testing.assert_array_equal(found, expected)


def test_an_all_zero_weight_is_decoded_too() -> None:
    model = proto_of(MLP, MLP_WEIGHTS)
    zeros = np.zeros((20, 12), np.float32)
    model.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(zeros, "W2"))
    (expected,), (found,) = (answers(each, {"x": normal(3, 16)}) for each in (model, in_networks(model)))
    np.testing.assert_array_equal(found, expected)
