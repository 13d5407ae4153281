"""LSTM, GRU and RNN in native code, against onnxruntime: directions, batches, lengths, states, activations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

import redpebble
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.frontend.import_model import import_model
from redpebble.options import Options
from redpebble.tools.explain.lowering_levels import lowering_of
from tests.ort.provider_models import options, plain_session
from tests.support.quantized_models import dynamically_quantized
from tests.support.recurrent_models import Recurrent

CALLS = ((1, 1), (6, 1), (5, 7), (3, 8), (4, 17), (2, 70))
"""Steps and samples; onnxruntime ends the process where there are none."""

CELLS = (
    Recurrent("LSTM", 5, 3, density=0.5),
    Recurrent("LSTM", 31, 17, direction="reverse"),
    Recurrent("LSTM", 64, 64, direction="bidirectional", density=0.1),
    Recurrent("LSTM", 16, 8, peepholes=True, starts=2, direction="bidirectional"),
    Recurrent("LSTM", 31, 5, starts=1, bias=False, attributes={"clip": 0.4}),
    Recurrent("LSTM", 8, 5, attributes={"activations": ["HardSigmoid", "Relu", "Tanh"]}),
    Recurrent("GRU", 5, 3, density=0.5, starts=1),
    Recurrent("GRU", 31, 17, direction="bidirectional", attributes={"linear_before_reset": 1}),
    Recurrent("GRU", 64, 32, direction="reverse", bias=False),
    Recurrent("RNN", 17, 17, starts=1),
    Recurrent("LSTM", 12, 9, lengths=True, starts=2, direction="bidirectional"),
    Recurrent("GRU", 33, 6, lengths=True, direction="reverse"),
    Recurrent("RNN", 31, 9, direction="bidirectional", attributes={"activations": ["Relu", "Tanh"], "clip": 0.9}),
)

QUICK = (CELLS[2], CELLS[3], CELLS[7])
"""Cells that are always compiled: the others take as long each."""


def judge(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, feeds: dict[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
    return [np.asarray(one) for one in session.run(None, feeds)]


def same(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6)


def name(cell: Recurrent) -> str:
    return f"{cell.operator}-{cell.hidden}-{cell.direction}"


@pytest.mark.parametrize("cell", CELLS, ids=name)
def test_the_reference_is_what_onnxruntime_computes(cell: Recurrent) -> None:
    model, feeds = cell.model(), cell.feeds(5, 3)
    same(interpret(imported(model), feeds), run(judge(model), feeds))


@pytest.mark.parametrize(
    "cell", [pytest.param(one, marks=[] if one in QUICK else pytest.mark.slow) for one in CELLS], ids=name
)
def test_native_code_gives_what_onnxruntime_gives(cell: Recurrent, tmp_path: Path) -> None:
    model = cell.model()
    network, expected = redpebble.compile(model, threads=1, cache=tmp_path), judge(model)
    for steps, batch in CALLS:
        feeds = cell.feeds(steps, batch)
        same(network.run(None, feeds), run(expected, feeds))


@pytest.mark.parametrize(
    "outputs",
    [
        ("y_h", "y_c"),
        *(pytest.param(one, marks=pytest.mark.slow) for one in (("y",), ("y_h",), ("y_c",), ("y", "y_c"))),
    ],
    ids="+".join,
)
def test_any_of_the_results_may_be_asked_for(outputs: tuple[str, ...], tmp_path: Path) -> None:
    cell = Recurrent("LSTM", 9, 4, outputs=outputs, direction="bidirectional")
    network = redpebble.compile(cell.model(), threads=1, cache=tmp_path)
    feeds = cell.feeds(4, 3)
    same(network.run(None, feeds), run(judge(cell.model()), feeds))


@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (4, 0), (0, 0)])
def test_no_steps_leave_the_states_and_no_samples_are_none(steps: int, batch: int, tmp_path: Path) -> None:
    cell = Recurrent("LSTM", 9, 4, starts=2)
    network, feeds = redpebble.compile(cell.model(), threads=1, cache=tmp_path), cell.feeds(steps, batch)
    every, *last = network.run(None, feeds)
    assert every.shape == (steps, 1, batch, 9)
    if not steps:
        same(last, [feeds["h0"], feeds["c0"]])


def test_a_step_a_call_gives_what_all_steps_in_one_call_give(tmp_path: Path) -> None:
    cell = Recurrent("LSTM", 24, 10, starts=2)
    network, feeds = redpebble.compile(cell.model(), threads=1, cache=tmp_path), cell.feeds(6, 2)
    states = {"h0": feeds["h0"], "c0": feeds["c0"]}
    for step in feeds["x"]:
        _, states["h0"], states["c0"] = network.run(None, {"x": step[np.newaxis], **states})
    same([states["h0"], states["c0"]], network.run(None, feeds)[1:])


def test_threads_share_samples(tmp_path: Path) -> None:
    cell = Recurrent("GRU", 40, 20)
    network, feeds = redpebble.compile(cell.model(), threads=2, cache=tmp_path), cell.feeds(5, 150)
    same(network.run(None, feeds), run(judge(cell.model()), feeds))


def test_samples_first_is_the_same_with_other_axes(tmp_path: Path) -> None:
    cell = Recurrent("GRU", 12, 7, starts=1, direction="bidirectional")
    model = cell.model()
    feeds, expected = cell.feeds(5, 3), judge(model)
    every, last = run(expected, feeds)
    (node,) = model.graph.node
    node.attribute.append(onnx.helper.make_attribute("layout", 1))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    for value, sizes in (("x", ("batch", "steps", 7)), ("h0", ("batch", 2, 12))):
        (found,) = [one for one in model.graph.input if one.name == value]
        found.CopyFrom(onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, sizes))
    network = redpebble.compile(model, threads=1, cache=tmp_path)
    swapped = {key: array.swapaxes(0, 1) for key, array in feeds.items()}
    same(network.run(None, swapped), [every.transpose(2, 0, 1, 3), last.transpose(1, 0, 2)])


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (Recurrent("LSTM", 4, 3, attributes={"input_forget": 1}), "expected input_forget=0, got 1"),
        (
            Recurrent("RNN", 4, 3, attributes={"activations": ["Affine"], "activation_alpha": [1.0]}),
            "expected activations of elu, hardsigmoid, leakyrelu, relu, sigmoid, softplus, tanh, got Affine",
        ),
    ],
)
def test_what_has_no_code_is_refused_by_name(cell: Recurrent, reason: str) -> None:
    with pytest.raises(redpebble.ModelError, match=rf"node 'cell'.*{reason}"):
        redpebble.compile(cell.model())


@pytest.mark.parametrize(
    "direction", ["bidirectional", *(pytest.param(one, marks=pytest.mark.slow) for one in ("forward", "reverse"))]
)
def test_samples_end_each_after_its_own_steps(direction: str, tmp_path: Path) -> None:
    cell = Recurrent("LSTM", 9, 4, lengths=True, starts=2, direction=direction)
    module, expected = imported(cell.model()), judge(cell.model())
    network = redpebble.compile(cell.model(), threads=1, cache=tmp_path)
    for lengths in ((5, 3, 1, 1), (2, 5, 5, 4), (0, 5, 0, 2), (0, 0, 0, 0), (5, 5, 5, 5)):
        feeds = {**cell.feeds(5, 4), "lengths": np.array(lengths, np.int32)}
        same(interpret(module, feeds), run(expected, feeds))
        same(network.run(None, feeds), run(expected, feeds))


def imported(model: onnx.ModelProto) -> ModuleOp:
    return import_model(model, foreign="prologue").module


GAINING = (
    Recurrent("LSTM", 192, 64, density=0.08, lengths=True, starts=1),
    Recurrent("LSTM", 192, 96, density=0.08, direction="bidirectional", starts=2),
    Recurrent("GRU", 192, 64, density=0.08, attributes={"linear_before_reset": 1}),
)


@pytest.mark.slow
@pytest.mark.parametrize("cell", GAINING, ids=name)
def test_a_session_runs_a_sparse_recurrence_as_our_node(cell: Recurrent) -> None:
    model = cell.model()
    result = redpebble.optimize(model)
    assert [node.op_type for node in onnx_ir.to_proto(result.model).graph.node] == ["SparseNetwork_0"]
    before = redpebble.counters()["networks_as_functions"]
    session, expected = redpebble.session(model), judge(model)
    for steps, batch in CALLS:
        feeds = cell.feeds(steps, batch)
        same(run(session, feeds), run(expected, feeds))
    assert redpebble.counters()["networks_as_functions"] == before


def test_the_function_of_a_recurrence_is_the_node_that_it_was() -> None:
    cell = Recurrent("LSTM", 160, 96, density=0.1, peepholes=True, starts=2, attributes={"clip": 2.0})
    model = onnx_ir.to_proto(redpebble.optimize(cell.model()).model)
    (function,) = model.functions
    (before,), (after,) = cell.model().graph.node, function.node
    stated = {one.name: onnx.helper.get_attribute_value(one) for one in after.attribute}
    assert stated == {one.name: onnx.helper.get_attribute_value(one) for one in before.attribute}
    # without our library, onnxruntime runs the function
    feeds = cell.feeds(4, 3)
    same(run(judge(model), feeds), run(judge(cell.model()), feeds))


@pytest.mark.parametrize(
    "cell",
    [Recurrent("LSTM", 160, 96, density=0.9), Recurrent("GRU", 8, 8, density=0.5)],
    ids=["dense", "small"],
)
def test_a_recurrence_that_gains_nothing_stays(cell: Recurrent) -> None:
    nodes = onnx_ir.to_proto(redpebble.optimize(cell.model()).model).graph.node
    assert [node.op_type for node in nodes] == [cell.operator]


@pytest.mark.slow
def test_the_provider_runs_a_sparse_recurrence() -> None:
    cell = Recurrent("LSTM", 192, 64, density=0.08, lengths=True, starts=2)
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(redpebble.register(), {})
    session = onnxruntime.InferenceSession(cell.model().SerializeToString(), options)
    for steps, batch in ((6, 3), (1, 1)):
        feeds = cell.feeds(steps, batch)
        same(run(session, feeds), run(judge(cell.model()), feeds))


def test_a_portable_file_keeps_the_node() -> None:
    nodes = onnx_ir.to_proto(redpebble.optimize(GAINING[1].model(), target="portable").model).graph.node
    assert [node.op_type for node in nodes] == ["LSTM"]


@pytest.mark.slow
def test_layers_around_a_recurrence_are_taken_beside_it(tmp_path: Path) -> None:
    model = stacked()
    result = redpebble.optimize(model)
    left = [node.op_type for node in onnx_ir.to_proto(result.model).graph.node if node.domain == ""]
    assert not {"LSTM", "GRU", "MatMul"} & set(left)
    network, session, expected = redpebble.compile(model, cache=tmp_path), redpebble.session(model), judge(model)
    for steps, batch in ((5, 3), (1, 1)):
        feeds = {"x": np.random.default_rng(0).standard_normal((batch, steps, 96), np.float32)}
        for ours in (network.run(None, feeds), run(session, feeds)):
            same(ours, run(expected, feeds))


def stacked() -> onnx.ModelProto:
    """What torch writes: samples first outside, two recurrences, both directions side by side, a layer of the last."""
    first = Recurrent("LSTM", 192, 96, density=0.08, direction="bidirectional")
    second = Recurrent("GRU", 128, 384, density=0.1, attributes={"linear_before_reset": 1}, seed=1)
    rng = np.random.default_rng(2)
    head = (rng.standard_normal((128, 256)) * (rng.random((128, 256)) < 0.1)).astype(np.float32)
    arrays = {"head": head, "sides": np.array([0, 0, 384]), "axis": np.array([1])}
    for number, cell in enumerate((first, second)):
        held = {one.name: onnx.numpy_helper.to_array(one) for one in cell.model().graph.initializer}
        arrays |= {f"{key}{number}": array for key, array in held.items()}
    nodes = [
        onnx.helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        onnx.helper.make_node("LSTM", ["steps", "w0", "r0", "b0"], ["y0"], hidden_size=192, direction="bidirectional"),
        onnx.helper.make_node("Transpose", ["y0"], ["sides0"], perm=[0, 2, 1, 3]),
        onnx.helper.make_node("Reshape", ["sides0", "sides"], ["rows0"]),
        onnx.helper.make_node("GRU", ["rows0", "w1", "r1", "b1"], ["y1"], hidden_size=128, linear_before_reset=1),
        onnx.helper.make_node("Squeeze", ["y1", "axis"], ["rows1"]),
        onnx.helper.make_node("MatMul", ["rows1", "head"], ["scores"]),
        onnx.helper.make_node("Transpose", ["scores"], ["y"], perm=[1, 0, 2]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "stacked",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "steps", 96])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", "steps", 256])],
        [onnx.numpy_helper.from_array(array, key) for key, array in arrays.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)


def test_a_report_shows_a_recurrence_become_layers_and_a_loop() -> None:
    levels = lowering_of(Recurrent("GRU", 40, 20).model(), Options()).levels
    assert "expand recurrences" in [level.name for level in levels]


@pytest.mark.parametrize(("lengths", "is_taken"), [((5, 5, 5), True), ((5, 4, 5), False)])
def test_constant_lengths_that_are_all_steps_are_none(lengths: tuple[int, ...], *, is_taken: bool) -> None:
    model = Recurrent("LSTM", 96, 96, density=0.05).model()
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(lengths, np.int32), "lengths"))
    model.graph.node[0].input.append("lengths")
    for axis, size in enumerate((5, len(lengths))):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    assert bool(redpebble.optimize(model, target="ort").networks) == is_taken
    feeds = {"x": np.random.default_rng(0).standard_normal((5, len(lengths), 96), np.float32)}
    found, expected = (one.run(None, feeds) for one in (redpebble.session(model), plain_session(model, 1)))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_recurrence_of_eight_bits_is_the_runtimes_as_it_was(tmp_path: Path, *, per_channel: bool) -> None:
    """Its codes depend on the range of all samples and steps: onnxruntime's node is left, at its speed."""
    cell = Recurrent("LSTM", 64, 48, density=0.1, direction="bidirectional", starts=2)
    model = dynamically_quantized(cell.model(), tmp_path, "QInt8", per_channel=per_channel, operators=["LSTM"])
    assert [node.op_type for node in model.graph.node] == ["DynamicQuantizeLSTM"]
    made = onnx_ir.to_proto(redpebble.optimize(model).model)
    assert [node.op_type for node in made.graph.node] == ["DynamicQuantizeLSTM"]
    # onnxruntime's codes are those of a thread's share of the samples
    session, expected = redpebble.session(model, options(threads=1)), plain_session(model)
    for steps, batch in CALLS[:4]:
        feeds = cell.feeds(steps, batch)
        for one, other in zip(run(session, feeds), run(expected, feeds), strict=True):
            assert np.array_equal(one, other)
