"""Networks that are pruned and quantized: the same bytes as onnxruntime's integers, in every form."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import redpebble
from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.ops.tile import TileOp
from redpebble.export.sparse_networks.node_format import DOMAIN
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.kernels.byte_times import gains
from redpebble.kernels.machine import ANY_MACHINE, Machine
from redpebble.options import Options
from redpebble.pipeline import build
from redpebble.runtime.jit import host_target
from redpebble.sparse.csr import CscMatrix
from redpebble.theory.depth_first.depth_first_order import Blocks
from redpebble.verification.oracle import Oracle
from tests.support.lowering_modules import native, run_depth_first
from tests.support.quantized_models import (
    Form,
    dynamically_quantized,
    pruned_network,
    quantized,
    with_dense_end,
)

Floats = NDArray[np.float32]

FORMS: list[tuple[Form, str, str, bool]] = [
    ("qdq", "QUInt8", "QInt8", False),
    ("qdq", "QUInt8", "QInt8", True),
    ("qdq", "QInt8", "QInt8", True),
    ("qdq", "QUInt8", "QUInt8", False),
    ("operator", "QUInt8", "QInt8", False),
    ("operator", "QInt8", "QInt8", False),
]


def outcome(model: onnx.ModelProto, x: Floats) -> Floats:
    """Return what onnxruntime computes."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def inputs(rows: int, features: int) -> Floats:
    return np.random.default_rng(rows).standard_normal((rows, features), dtype=np.float32)


def networks_of(model: onnx.ModelProto) -> list[str]:
    """Return the operators of the optimized model."""
    optimized = redpebble.optimize(model, target="ort").model
    return [node.op_type if node.domain != DOMAIN else "ours" for node in optimized.graph]


needs_vnni = pytest.mark.skipif(not host_target().multiplies_bytes, reason="sums saturate")
"""Without these instructions onnxruntime's sums of pairs saturate at 16 bits."""


@needs_vnni
def test_a_dense_layer_behind_sparse_ones_still_computes_with_codes(tmp_path: Path) -> None:
    model = quantized(with_dense_end(), tmp_path, "qdq", "QUInt8", "QInt8")
    assert networks_of(model).count("ours") == 1
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "inside.onnx")
    session, x = redpebble.session(model, options), inputs(5, 128)
    inside = [node.op_type for node in onnx.load_from_string((tmp_path / "inside.onnx").read_bytes()).graph.node]
    assert "QGemm" in inside
    assert "Gemm" not in inside
    assert np.array_equal(session.run(None, {"x": x})[0], outcome(model, x))


@needs_vnni
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "_".join(map(str, form)))
def test_all_forms_of_the_quantizer_give_the_same_bytes(form: tuple[Form, str, str, bool], tmp_path: Path) -> None:
    written, activations, weights, per_channel = form
    network = pruned_network([40, 64, 48, 20], 0.15)
    model = quantized(network, tmp_path, written, activations, weights, per_channel=per_channel)
    x = inputs(11, 40)
    expected = outcome(model, x)
    assert networks_of(model) == ["ours"]
    assert np.array_equal(redpebble.compile(model).run(None, {"x": x})[0], expected)


@needs_vnni
def test_a_session_runs_all_layers_in_one_node(tmp_path: Path) -> None:
    model = quantized(pruned_network([40, 64, 20], 0.15), tmp_path, "qdq", "QUInt8", "QInt8")
    x = inputs(5, 40)
    assert np.array_equal(redpebble.session(model).run(None, {"x": x})[0], outcome(model, x))


@needs_vnni
@pytest.mark.parametrize("weights", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
def test_scales_that_a_call_finds_are_those_of_onnxruntime(weights: str, *, per_channel: bool, tmp_path: Path) -> None:
    network = pruned_network([40, 64, 48, 20], 0.15)
    model = dynamically_quantized(network, tmp_path, weights, per_channel=per_channel)
    assert networks_of(model) == ["ours"]
    compiled, written = redpebble.compile(model), redpebble.optimize(model, target="ort").model
    for rows in (1, 70):
        x = inputs(rows, 40)
        expected = outcome(model, x)
        np.testing.assert_allclose(compiled.run(None, {"x": x})[0], expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(outcome(onnx_ir.to_proto(written), x), expected, rtol=1e-6, atol=1e-6)


def test_the_function_of_a_node_computes_the_same(tmp_path: Path) -> None:
    model = quantized(pruned_network([40, 64, 20], 0.15), tmp_path, "qdq", "QUInt8", "QUInt8")
    x = inputs(5, 40)
    written = redpebble.optimize(model, target="ort").model
    assert np.array_equal(outcome(onnx_ir.to_proto(written), x), outcome(model, x))


@needs_vnni
@pytest.mark.parametrize("activation", ["LeakyRelu", "Sigmoid"])
def test_activations_from_codes_to_codes_are_part_of_a_network(activation: str, tmp_path: Path) -> None:
    model = quantized(pruned_network([40, 64, 20], 0.15, activation), tmp_path, "operator", "QUInt8", "QInt8")
    assert f"QLinear{activation}" in {node.op_type for node in model.graph.node}
    x = inputs(50, 40)
    assert networks_of(model) == ["ours"]
    assert np.array_equal(redpebble.compile(model).run(None, {"x": x})[0], outcome(model, x))


@pytest.mark.parametrize("form", ["qdq", "operator"])
def test_codes_stay_where_there_are_no_networks_of_ours(form: Form, tmp_path: Path) -> None:
    model = quantized(pruned_network([40, 64, 20], 0.15), tmp_path, form, "QUInt8", "QInt8")
    written = redpebble.optimize(model, target="portable").model
    operators = [node.op_type for node in model.graph.node]
    assert sorted(node.op_type for node in written.graph) == sorted(operators)


@pytest.mark.parametrize("form", ["qdq", "operator"])
def test_a_network_of_codes_of_an_older_opset_is_ours(form: Form, tmp_path: Path) -> None:
    network = pruned_network([40, 64, 20], 0.15)
    network.opset_import[0].version = 10
    model, x = quantized(network, tmp_path, form, "QUInt8", "QInt8"), inputs(5, 40)
    written = redpebble.optimize(model, target="ort").model
    assert {node.domain for node in written.graph} == {"ai.redpebble"}
    np.testing.assert_allclose(outcome(onnx_ir.to_proto(written), x), outcome(model, x), rtol=1e-6, atol=0.05)


@pytest.mark.slow
def test_an_activation_between_layers_stays_within_a_step(tmp_path: Path) -> None:
    model = quantized(pruned_network([40, 64, 20], 0.15, "Gelu"), tmp_path, "qdq", "QUInt8", "QInt8")
    x = inputs(50, 40)
    assert networks_of(model) == ["ours"]
    difference = np.abs(redpebble.compile(model).run(None, {"x": x})[0] - outcome(model, x))
    assert np.mean(difference > 0) < 0.02


def test_layers_gain_by_their_densities_sizes_and_structure() -> None:
    rng = np.random.default_rng(0)

    def predicted(density: float, size: int, block: int = 1, machine: Machine = ANY_MACHINE) -> bool:
        kept = np.repeat(rng.random((size // block, size)) < density, block, axis=0)
        return gains(CscMatrix.from_dense((kept * rng.integers(1, 100, kept.shape)).astype(np.float32)), machine)

    assert predicted(0.25, 512)
    assert not predicted(0.35, 512)
    assert predicted(0.35, 512, block=4)
    assert not predicted(1.0, 64)
    # a known machine decides by itself: tiles take no longer for more weights, other CPUs of its kind have none
    server = Machine(prices="emerald_rapids", places_bytes=True)
    assert predicted(0.5, 512, machine=replace(server, multiplies_tiles=True))
    assert predicted(0.2, 512, machine=server)
    assert not predicted(0.5, 512, machine=server)
    assert not predicted(1.0, 64, machine=replace(server, multiplies_tiles=True))


def test_dense_layers_stay_with_onnxruntime(tmp_path: Path) -> None:
    model = quantized(pruned_network([40, 64, 20], 1.0), tmp_path, "qdq", "QUInt8", "QInt8")
    assert "ours" not in networks_of(model)


SPARSEML = """
<ir_version: 9, opset_import: ["" : 17]>
sparseml (float[n, 8] x) => (float[n, 4] y) <
  float xs = {0.05}, uint8 xz = {120}, uint8 wz = {128}, int32[4] b = {10, -20, 30, 0}, float s = {0.002}>
{
  q = QuantizeLinear(x, xs, xz)
  p = MatMulInteger(q, w, xz, wz)
  a = Add(p, b)
  f = Cast<to = 1>(a)
  y = Mul(f, s)
}
"""


def test_weights_are_counted_behind_their_zero() -> None:
    model = parser.parse_model(SPARSEML)
    weight = np.full((8, 4), 128, dtype=np.uint8)
    weight[[0, 3, 5, 7], [0, 1, 2, 3]] = [0, 255, 130, 1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    x = inputs(6, 8)
    assert networks_of(model) == ["ours"]
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})  # pyright: ignore[reportUnknownMemberType]
    assert np.array_equal(redpebble.compile(model).run(None, {"x": x})[0], expected)


TIES = """
<ir_version: 9, opset_import: ["" : 17]>
ties (float[n, 127] x) => (float[n, 127] y) <
  float xs = {0.3}, uint8 xz = {0}, float ws = {0.05}, int8 wz = {0}, float ys = {0.03}, uint8 yz = {7}>
{
  q = QuantizeLinear(x, xs, xz)
  h = QLinearMatMul(q, xs, xz, w, ws, wz, ys, yz)
  y = DequantizeLinear(h, ys, yz)
}
"""


def test_sums_halfway_between_two_bytes_are_rounded_as_by_integer_kernels() -> None:
    # 0.3 * 0.05 / 0.03 is a half, but for the last bits: every odd sum is about halfway
    model, weight = parser.parse_model(TIES), np.diag(np.arange(1, 128, dtype=np.int8))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    x = np.repeat(np.arange(256, dtype=np.float32)[:, np.newaxis] * np.float32(0.3), 127, axis=1)
    expected = outcome(model, x)
    assert networks_of(model) == ["ours"]
    standard = onnx_ir.to_proto(redpebble.optimize(model, target="ort").model)
    assert np.array_equal(redpebble.compile(model).run(None, {"x": x})[0], expected)
    assert np.array_equal(outcome(standard, x), expected)  # the function of our node


BLOCKED = """
<ir_version: 10, opset_import: ["" : 21]>
blocked (float[n, 4] x) => (float[n, 2] y) <
  float xs = {0.05}, uint8 xz = {120}, int8[4, 2] w = {1, 0, 0, 0, 0, 0, 0, 1}, float[2, 2] ws = {0.1, 0.1, 0.2, 0.2}>
{
  q = QuantizeLinear(x, xs, xz)
  d = DequantizeLinear(q, xs, xz)
  v = DequantizeLinear<block_size = 2, axis = 0>(w, ws)
  y = MatMul(d, v)
}
"""


def test_weights_in_blocks_are_refused() -> None:
    model = parser.parse_model(BLOCKED)
    with pytest.raises(UnsupportedModelError):
        redpebble.compile(model)
    left = redpebble.optimize(model, target="ort").left
    assert left is not None
    assert "expected a scale of its weight, or one an output, got one a block" in left.reasons.values()


ROUNDED = """
<ir_version: 9, opset_import: ["" : 17]>
rounded (float[n, 4] x) => (float[n, 4] y) <float s = {0.05}, int8 z = {-100}> {
  a = Abs(x)
  q = QuantizeLinear(a, s, z)
  y = DequantizeLinear(q, s, z)
}
"""


def test_values_are_rounded_to_codes_without_a_layer() -> None:
    model = parser.parse_model(ROUNDED)
    assert np.array_equal(redpebble.compile(model).run(None, {"x": (x := 9 * inputs(6, 4))})[0], outcome(model, x))


SCALED_BY_ANOTHER = """
<ir_version: 9, opset_import: ["" : 17]>
other (float[n, 4] x, float[n, 4] o) => (float[n, 4] y) <float ws = {0.1},
  int8[4, 4] w = {1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}> {
  q, s, z = DynamicQuantizeLinear(x)
  q2, s2, z2 = DynamicQuantizeLinear(o)
  p = MatMulInteger(q, w, z)
  f = Cast<to = 1>(p)
  t = Mul(s2, ws)
  y = Mul(f, t)
}
"""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "expected the scale of its input, got that of another tensor"),
        ({"(s2, ws)": "(s, ws)"}, ""),
        (
            {"MatMulInteger(q, w, z)": "MatMulInteger(q, w)"},
            "expected one constant scale and zero of the input of MatMulInteger",
        ),
        ({"Mul(f, t)": "Mul(f, ws)"}, "expected the scales of its operands as factor"),
    ],
)
def test_dynamic_scales_are_those_of_the_input(changes: dict[str, str], reason: str) -> None:
    text = SCALED_BY_ANOTHER
    for old, new in changes.items():
        text = text.replace(old, new)
    model = parser.parse_model(text)
    left = redpebble.optimize(model, target="ort").left
    assert left is not None
    assert reason in "; ".join(left.reasons.values())
    assert ("ours" in networks_of(model)) == (not reason)


WEIGHT_ONLY = """
<ir_version: 10, opset_import: ["" : 21]>
blocked (float[n, 256] x) => (float[n, 64] y) {
  w = DequantizeLinear<axis = 0>(c, s, z)
  y = MatMul(x, w)
}
"""


@pytest.mark.parametrize("form", ["tensor", "outputs", "inputs", "blocks"])
def test_weights_alone_are_floats_where_most_are_zeros(form: str) -> None:
    axis, block = {"tensor": (0, 0), "outputs": (1, 0), "inputs": (0, 0), "blocks": (0, 16)}[form]
    shape = {"tensor": (), "outputs": (64,), "inputs": (256,), "blocks": (16, 64)}[form]
    text = WEIGHT_ONLY.replace("axis = 0", f"axis = {axis}" + (f", block_size = {block}" if block else ""))
    model, rng = parser.parse_model(text), np.random.default_rng(3)
    zeros = rng.integers(100, 150, shape).astype(np.uint8)
    wide = np.repeat(zeros, 16, 0) if block else zeros[:, None] if form == "inputs" else zeros
    codes = np.where(rng.random((256, 64)) < 0.1, rng.integers(0, 255, (256, 64)), wide).astype(np.uint8)
    arrays = {"c": codes, "z": zeros, "s": rng.uniform(0.1, 1, shape).astype(np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(one), name) for name, one in arrays.items())
    x = inputs(7, 256)
    assert networks_of(model) == ["ours"]
    # onnxruntime rounds the inputs, too, where it fuses the two nodes
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})  # pyright: ignore[reportUnknownMemberType]
    result = redpebble.session(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(result, np.asarray(expected, np.float32), rtol=1e-5, atol=1e-3)


@needs_vnni
def test_dead_and_equal_neurons_go_without_a_trace(tmp_path: Path) -> None:
    network = pruned_network([40, 64, 48, 20], 0.15)
    parameters = {one.name: onnx.numpy_helper.to_array(one).copy() for one in network.graph.initializer}
    parameters["w0"][:, [1, 5, 9]] = 0  # their codes are those of their biases
    parameters["w0"][:, 11] = parameters["w0"][:, 12]
    parameters["b0"][11] = parameters["b0"][12]
    parameters["w1"][[11, 12]] /= 2  # their sum is a code, too
    parameters["w1"][20] = 0  # nothing reads it
    for one in network.graph.initializer:
        one.CopyFrom(onnx.numpy_helper.from_array(parameters[one.name], one.name))
    model = quantized(network, tmp_path, "qdq", "QUInt8", "QInt8")
    compiled, x = redpebble.compile(model), inputs(70, 40)
    assert next(layer.outputs for layer in compiled.report) <= 64 - 5
    assert np.array_equal(compiled.run(None, {"x": x})[0], outcome(model, x))


@needs_vnni
def test_files_of_networks_with_rounded_results_load(tmp_path: Path) -> None:
    model = quantized(pruned_network([40, 64, 48, 20], 0.15), tmp_path, "qdq", "QUInt8", "QInt8", per_channel=True)
    written, options = redpebble.optimize(model, target="ort").model, onnxruntime.SessionOptions()
    options.register_custom_ops_library(redpebble.get_library_path())
    session = onnxruntime.InferenceSession(onnx_ir.to_proto(written).SerializeToString(), options)
    x = inputs(70, 40)
    assert np.array_equal(session.run(None, {"x": x})[0], outcome(model, x))


def rounded_by_its_range(activation: str, outputs: int, before: str = "") -> onnx.ModelProto:
    """A layer of bytes of what an activation yields, as `quantize_dynamic` writes it."""
    layers = ("before", "after") if before else ("after",)
    nodes: list[str] = []
    value = "x"
    for name in layers:
        source = value
        if name == "after":
            nodes.append(f"a = {activation}({source})")
            source = "a"
        result = "y" if name == "after" else "h"
        # sums of two products fit into 16 bits, where onnxruntime has no more
        nodes += [
            f"{name}_q, {name}_s, {name}_z = DynamicQuantizeLinear({source})",
            f"{name}_p = MatMulInteger({name}_q, {name}_w, {name}_z)",
            f"{name}_f = Cast<to = 1>({name}_p)",
            f"{name}_t = Mul({name}_s, ws)",
            f"{result} = Mul({name}_f, {name}_t)",
        ]
        value = result
    sizes = f"(float[n, 256] x) => (float[n, {outputs}] y) <float ws = {{0.01}}>"
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> own {sizes} {{ {" ".join(nodes)} }}')
    rng = np.random.default_rng(0)
    for name, width in zip(layers, (256, outputs) if before else (outputs,), strict=True):
        kept = rng.random((256, width)) < 0.1
        weight = np.where(kept, rng.integers(-60, 60, (256, width)), 0).astype(np.int8)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"{name}_w"))
    return model


def test_a_layer_of_one_output_stays() -> None:
    """What is rounded for it takes longer than the layer: 0.76x was measured where 512 values were, by Tanh."""
    result = redpebble.optimize(rounded_by_its_range("Tanh", 1), target="ort")
    assert not result.networks
    assert result.left is not None
    assert any("a layer of one output" in reason for reason in result.left.reasons.values())
    assert redpebble.optimize(rounded_by_its_range("Tanh", 256), target="ort").networks


@pytest.mark.parametrize("activation", ["Tanh", "Sigmoid", "Softplus", "Relu"])
def test_a_power_of_what_the_runtime_yields_stays_before_a_range_is_found(activation: str) -> None:
    """Other last bits would make other codes; behind a layer of ours there is nothing else to agree with."""
    model = rounded_by_its_range(activation, 256)
    left = [node.op_type for node in redpebble.optimize(model, target="ort").model.graph if not node.domain]
    assert left == ([] if activation == "Relu" else [activation])
    behind = redpebble.optimize(rounded_by_its_range(activation, 256, "a layer"), target="ort")
    assert not [node for node in behind.model.graph if not node.domain]
    ours, plain = redpebble.session(model), onnxruntime.InferenceSession(model.SerializeToString())
    (found,), (expected,) = (session.run(None, {"x": inputs(6, 256)}) for session in (ours, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("way", ["shared", "dead rows", "depth first"])
def test_what_tiles_do_with_layers_on_codes_gives_the_same_bytes(way: str, tmp_path: Path) -> None:
    model = onnx_ir.from_proto(quantized(biased_network(), tmp_path, "qdq", "QUInt8", "QInt8"))
    module = build(model, Options(threads=2, drop_dead_rows=way == "dead rows"))
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    if way == "shared":
        tile.schedule = ScheduleAttr([1, 64], 2, {1: 1e4, 64: 1e6}, {1: 1.0, 64: 1.0})
    elif way == "dead rows":
        assert tile.dead_rows is not None
    else:
        run_depth_first(tile, range(6), Blocks(4))
    network, oracle = native(module, host_target(), 2), Oracle(model, exact=True)
    plain = redpebble.compile(model, cache=False)
    for rows in (0, 1, 7, 17, 64, 150):
        x = inputs(rows, 96) * np.random.default_rng(0).random((rows, 1), np.float32)
        found = network.run(None, {"x": x})[0]
        assert np.array_equal(found, oracle.run({"x": x})[0])
        assert np.array_equal(found, plain.run(None, {"x": x})[0])


def biased_network() -> onnx.ModelProto:
    """Return layers whose neurons read those next to them, and are 0 but for large sums."""
    model = pruned_network([96] * 7, 0.15)
    own = np.arange(96)
    near = (own[:, None] - own) % 96 < 5
    for tensor in model.graph.initializer:
        array, rng = numpy_helper.to_array(tensor), np.random.default_rng(1)
        made = near * rng.standard_normal((96, 96)) if array.ndim == 2 else np.full(96, -0.5)
        tensor.CopyFrom(numpy_helper.from_array(made.astype(np.float32), tensor.name))
    model.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    model.graph.output[0].name = "z"
    return model
