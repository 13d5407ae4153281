"""`check --bisect` finds planted faults: a wrong operator, a wrong pair of operators, and a wrong kernel."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

from redpebble.kernels.families import FAMILIES
from redpebble.kernels.family import LayerWeights, PackedArrays
from redpebble.models import zoo
from redpebble.models.graph_builder import GraphBuilder, Output
from redpebble.models.pruned_weights import random_bias, random_weight
from redpebble.tools.comparing import bisecting, checking
from redpebble.tools.comparing.bisecting import Making, bisect
from redpebble.verification.compare import CheckPlan, Run
from redpebble.verification.oracle import Oracle, Tolerance
from tests.support.command_line import exit_code

PLAN = CheckPlan((3,), 1, 0, Tolerance())

MODEL = """<ir_version: 10, opset_import: ["": 20]>
graph (float[n, 8] x) => (float[n, 8] y, float[n, 8] z) <float[8, 8] w, float[8] two = {2, 2, 2, 2, 2, 2, 2, 2}> {
    a = MatMul(x, w)
    b = Relu(a)
    c = Mul(b, two)
    d = Sigmoid(c)
    e = Add(d, b)
    f = Softplus(x)
    z = Mul(f, two)
    g = Tanh(e)
    h = Mul(g, f)
    y = MatMul(h, w)
}
"""

Fault = Callable[[onnx.ModelProto], None]


def test_without_a_name_the_least_model_is_a_file_of_its_own_name(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "WAYS", {"session": wrong_in(sigmoid_is_tanh)})
    monkeypatch.chdir(tmp_path)
    for words in (("--bisect", "--way", "session"), ("--way", "session", "--bisect")):
        assert exit_code(monkeypatch, "check", model, "--batch", 3, "--runs", 1, *words) == 1
        (tmp_path / "least.onnx").unlink()
        (tmp_path / "least.npz").unlink()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = parse_model(MODEL)
    weight = np.random.default_rng(0).standard_normal((8, 8), np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    return tmp_path / "m.onnx"


def wrong_in(fault: Fault) -> Making:
    """Return a way to run models that has a fault: onnxruntime's, of another model."""

    def making(path: Path, outputs: Sequence[str]) -> Run:
        changed = onnx.load_from_string(path.read_bytes())
        fault(changed)
        target = path.with_name("faulty.onnx")
        target.write_bytes(changed.SerializeToString())
        oracle = Oracle(target)
        assert oracle.output_names == tuple(outputs)
        return oracle.run

    return making


def sigmoid_is_tanh(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        if node.op_type == "Sigmoid":
            node.op_type = "Tanh"


def a_doubled_sigmoid_is_tanh(model: onnx.ModelProto) -> None:
    """Change what a rewrite of two nodes would have made wrong: one of them alone is right."""
    if {"Mul", "Sigmoid"} <= {node.op_type for node in model.graph.node}:
        sigmoid_is_tanh(model)


@pytest.mark.parametrize(
    ("fault", "nodes"), [(sigmoid_is_tanh, ["Sigmoid"]), (a_doubled_sigmoid_is_tanh, ["Mul", "Sigmoid"])]
)
def test_the_first_node_and_the_least_model_that_differ_are_found(
    fault: Fault, nodes: list[str], model: Path, tmp_path: Path
) -> None:
    found = bisect(model, PLAN, wrong_in(fault), tmp_path / "least.onnx")
    assert found is not None
    assert found.node.op_type == "Sigmoid"
    least = onnx.load_from_string((tmp_path / "least.onnx").read_bytes())
    assert [node.op_type for node in least.graph.node] == nodes
    assert [value.name for value in least.graph.input] == [least.graph.node[0].input[0]]
    assert least.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    with np.load(tmp_path / "least.npz") as inputs:
        assert inputs.files == [value.name for value in least.graph.input]
        wrong, right = (
            wrong_in(fault)(tmp_path / "least.onnx", ["d"])(inputs),
            Oracle(tmp_path / "least.onnx").run(inputs),
        )
    assert np.abs(wrong[0] - right[0]).max() > 1e-3


def test_a_fault_behind_a_right_output_is_found(model: Path, tmp_path: Path) -> None:
    def fault(changed: onnx.ModelProto) -> None:
        for node in changed.graph.node:
            node.op_type = {"Softplus": "Softsign"}.get(node.op_type, node.op_type)

    found = bisect(model, PLAN, wrong_in(fault), tmp_path / "least.onnx")
    assert found is not None
    assert (found.node.op_type, [node.op_type for node in found.nodes]) == ("Softplus", ["Softplus"])


def test_a_fault_that_large_values_hide_for_some_nodes_is_found_where_it_is(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 20]>
    graph (float[n, 8] x) => (float[n, 8] y) <
        float[8] fill = {-3e38, -3e38, -3e38, -3e38, -3e38, -3e38, 0, 0}, bool[8] kept = {0, 0, 0, 0, 0, 0, 1, 1}
    > {
        a = Sigmoid(x)
        b = Where(kept, a, fill)
        c = Relu(b)
        y = Softmax(b)
        z = Tanh(c)
    }
    """
    (tmp_path / "m.onnx").write_bytes(parse_model(text).SerializeToString())
    found = bisect(tmp_path / "m.onnx", PLAN, wrong_in(sigmoid_is_tanh), tmp_path / "least.onnx")
    assert found is not None
    assert (found.node.op_type, [node.op_type for node in found.nodes]) == ("Sigmoid", ["Sigmoid"])


def test_a_model_that_agrees_has_no_such_node(model: Path, tmp_path: Path) -> None:
    assert bisect(model, PLAN, wrong_in(lambda _: None), tmp_path / "least.onnx") is None
    assert not (tmp_path / "least.onnx").exists()


def test_the_command_names_a_wrong_kernel_and_its_file_shows_it_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checking, "WAYS", {"session": wrong_in(sigmoid_is_tanh)})
    least = tmp_path / "least.onnx"
    words = ("--way", "session", "--batch", 3, "--runs", 1)
    assert exit_code(monkeypatch, "check", model, *words, "--bisect", least) == 1
    shown = capsys.readouterr().out
    assert "the first node that differs: Sigmoid, whose result is 'd'" in shown
    assert f"the least model that still does: {least}, inputs {least.with_suffix('.npz')}: Sigmoid" in shown
    assert exit_code(monkeypatch, "check", least, *words, "--inputs", least.with_suffix(".npz")) == 1
    assert "values differ" in capsys.readouterr().out


@pytest.fixture
def wrong_packing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Packed weights of layers with 24 outputs have a wrong bias."""
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    packs = {name: family.pack for name, family in FAMILIES.items()}

    def wrong(weights: LayerWeights, pack: Callable[[LayerWeights], PackedArrays]) -> PackedArrays:
        bias = weights.bias + np.float32(len(weights.bias) == 24)
        return pack(LayerWeights(weights.weight, bias, weights.panels, weights.blocks))

    for name, family in FAMILIES.items():
        object.__setattr__(family, "pack", partial(wrong, pack=packs[name]))
    yield
    for name, family in FAMILIES.items():
        object.__setattr__(family, "pack", packs[name])


@pytest.mark.usefixtures("wrong_packing")
def test_a_layer_whose_kernel_reads_wrong_weights_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, builder = np.random.default_rng(0), GraphBuilder()
    value = builder.input("x", ("batch", 32))
    for inputs, outputs in pairwise((32, 40, 24, 16, 8)):
        weight, bias = random_weight(outputs, inputs, 0.5, rng), random_bias(outputs, rng)
        value = builder.op("Relu", [builder.linear(value, weight, bias, f"layer{outputs}")], f"relu{outputs}")
    zoo.save(builder.model("net", {"y": Output(value, ("batch", 8))}), tmp_path / "net.onnx")
    least = tmp_path / "least.onnx"
    words = ("--way", "compile", "--batch", "1,7", "--runs", 1, "--bisect", least)
    assert exit_code(monkeypatch, "check", tmp_path / "net.onnx", *words) == 1
    assert re.search(r"the first node that differs: \w+ '\S*24\S*'", " ".join(capsys.readouterr().out.split()))
    (node,) = onnx.load_from_string(least.read_bytes()).graph.node
    assert node.op_type in ("Gemm", "Add", "MatMul")


def test_bisecting_is_of_our_ways_alone(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, "check", model, "--against", model, "--bisect", model.with_name("l.onnx")) == 2
    assert "expected --bisect without --against, got both" in capsys.readouterr().err
    words = ("--way", "session", "--batch", 3, "--runs", 1, "--bisect", model.with_name("l.onnx"))
    assert exit_code(monkeypatch, "check", model, *words) == 0
    assert "nothing differs, so that there is no layer to find" in capsys.readouterr().out


def test_nodes_are_called_by_their_names() -> None:
    node = parse_model(MODEL).graph.node[0]
    assert node.op_type == "MatMul"
    assert bisecting.node_words(bisecting.onnx_ir.node("MatMul", [], name="fc1")) == "MatMul 'fc1'"
