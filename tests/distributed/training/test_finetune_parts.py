"""Networks that are trained on their parts are the networks that one machine trains."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.distributed.graph.row_graph import RowGraph
from redpebble.distributed.write_parts import PartsRequest, write_parts
from redpebble.frontend.reading.model_source import read_model
from redpebble.models import zoo
from redpebble.models.graph_network import GraphNetwork
from redpebble.pipeline import build
from redpebble.theory.partition.partition import Partition
from redpebble.training.finetune import finetuned
from redpebble.training.options import FinetuneOptions
from redpebble.training.samples import Samples
from tests.distributed.launching import REDPEBBLE, mpiexec, partition_for

PROGRAM = Path(__file__).with_name("trained_program.py")
SPEC = "ffnn(depth=3,width=24,density=0.3)"
OPTIONS = FinetuneOptions(optimizer="sgd", epochs=2, batch=32, rate=1e-2)


def normed(*, activation: str = "Relu", end: str | None = None) -> onnx.ModelProto:
    """Three layers with a norm between the first two, which every rank computes, a sum, and an end on request."""
    rng = np.random.default_rng(0)
    shapes = {
        "w1": (20, 32),
        "w2": (32, 32),
        "w3": (32, 6),
        "b1": (32,),
        "b2": (32,),
        "b3": (6,),
        "s": (32,),
        "t": (32,),
    }
    arrays = {name: (0.5 * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    for name in ("w1", "w2", "w3"):
        arrays[name][rng.random(arrays[name].shape) < {"w1": 0.7, "w2": 0.2, "w3": 0.0}[name]] = 0
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h1"]),
        helper.make_node("LayerNormalization", ["h1", "s", "t"], ["n"]),
        helper.make_node("Gemm", ["n", "w2", "b2"], ["h2"]),
        helper.make_node(activation, ["h2"], ["r"]),
        helper.make_node("Add", ["r", "n"], ["sum"]),
        helper.make_node("Gemm", ["sum", "w3", "b3"], ["y" if end is None else "z"]),
    ]
    if end is not None:
        nodes.append(helper.make_node(end, ["z"], ["y"]))
    x, y = (helper.make_tensor_value_info(*port) for port in (("x", 1, ["rows", 20]), ("y", 1, ["rows", 6])))
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "graph", [x], [y], tensors)
    assert TensorProto.FLOAT == 1
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def write_case(
    folder: Path, source: onnx.ModelProto | str, options: FinetuneOptions = OPTIONS, kind: str = "rows", parts: int = 2
) -> None:
    """Write parts, samples, and what a network that was trained in one piece makes of them."""
    model = read_model(zoo.build(source) if isinstance(source, str) else source)
    module = build(model)
    folder.mkdir(parents=True)
    partition = partition_for(RowGraph.of(module), kind, parts)
    write_parts(module, PartsRequest(kind, parts, partition), folder / "parts")
    rng = np.random.default_rng(0)
    (port,), (output,) = model.graph.inputs, model.graph.outputs
    assert port.shape is not None
    assert output.shape is not None
    x = rng.standard_normal((128, int(str(port.shape[1]))), dtype=np.float32)
    y: NDArray[np.generic] = rng.standard_normal((128, int(str(output.shape[1]))), dtype=np.float32)
    if options.loss == "cross-entropy":
        y = y.argmax(axis=1)
    if options.loss == "crps":
        y = y[:, : y.shape[1] // 2]
    _write_expected(folder, model, Samples({"x": x}, y), options)


def _write_expected(folder: Path, model: onnx_ir.Model, samples: Samples, options: FinetuneOptions) -> None:
    trained, x = finetuned(model, samples, options), samples.inputs["x"]
    (expected,) = redpebble.compile(trained.model).run(None, {"x": x})
    losses = [epoch.validation for epoch in trained.report.epochs]
    assert samples.labels is not None
    np.savez(folder / "data.npz", x=x, y=samples.labels, expected=expected, losses=losses)
    (folder / "options.json").write_text(json.dumps(asdict(options)))


def write_nodes(
    folder: Path, network: GraphNetwork, owners: NDArray[np.int32], options: FinetuneOptions | None = None
) -> None:
    """Write parts that own nodes, samples, and what one machine makes of them."""
    if options is None:
        # sums that are not divided by a degree are large
        rate = 1e-4 if network.kind == "gin" else 5e-2
        options = FinetuneOptions(optimizer="sgd", epochs=5, rate=rate)
    rng = np.random.default_rng(0)
    model, parts = network.build(rng), int(owners.max()) + 1
    folder.mkdir(parents=True)
    write_parts(build(model), PartsRequest("nodes", parts, Partition(parts, (owners, owners))), folder / "parts")
    x, y = (
        rng.standard_normal((network.nodes, width), dtype=np.float32)
        for width in network.widths[:: len(network.widths) - 1]
    )
    labels: NDArray[np.generic] = y.argmax(axis=1) if options.loss == "cross-entropy" else y
    _write_expected(folder, model, Samples({"x": x}, labels), options)


def node_network(kind: str, nodes: int = 60, degree: float = 4.0) -> GraphNetwork:
    # a layer that narrows, one that widens: sums stand behind and before weights
    return GraphNetwork(kind, "power_law", nodes, degree, (9, 5, 12))


def assert_trained_alike(folder: Path, ranks: int, seconds: float = 120.0) -> None:
    done = mpiexec(ranks, sys.executable, PROGRAM, folder, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_ranks_train_a_graph_network_as_one_machine_does(tmp_path: Path) -> None:
    owners = np.random.default_rng(0).integers(0, 2, 60).astype(np.int32)
    write_nodes(tmp_path / "gat", node_network("gat"), owners)
    assert_trained_alike(tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_that_own_nodes_train_what_one_machine_trains(ranks: int, tmp_path: Path) -> None:
    every = np.arange(60, dtype=np.int32) % ranks
    for kind in ("gcn", "sage", "gin", "gat"):
        write_nodes(tmp_path / kind, node_network(kind), np.random.default_rng(ranks).permutation(every))
    classes = FinetuneOptions("cross-entropy", "sgd", epochs=5, rate=5e-2)
    write_nodes(tmp_path / "classes", node_network("gcn"), every, classes)
    write_nodes(tmp_path / "no edges", node_network("gat", 7, 0.0), np.arange(7, dtype=np.int32) % ranks)
    write_nodes(tmp_path / "a node each", node_network("sage", ranks, 2.0), np.arange(ranks, dtype=np.int32))
    assert_trained_alike(tmp_path, ranks, seconds=500.0)


@pytest.mark.slow
def test_a_part_without_nodes_waits_for_the_others(tmp_path: Path) -> None:
    for kind in ("sage", "gat"):
        write_nodes(tmp_path / kind, node_network(kind), 2 * (np.arange(60, dtype=np.int32) % 2))
    assert_trained_alike(tmp_path, 3)


@pytest.mark.slow
def test_the_command_line_trains_nodes_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    case = tmp_path / "case"
    write_nodes(case, node_network("gcn"), np.arange(60, dtype=np.int32) % 2)
    x, y = (dict(np.load(case / "data.npz"))[name] for name in "xy")
    np.savez(tmp_path / "data.npz", x=x, y=y)
    np.savez(tmp_path / "fewer.npz", x=x[:-1], y=y[:-1])
    np.savez(tmp_path / "narrow.npz", x=x[:, :-1], y=y)
    zoo.save(node_network("gcn").build(np.random.default_rng(1)), tmp_path / "teacher.onnx")

    def trained(ranks: int, out: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return mpiexec(ranks, REDPEBBLE, "finetune", case / "parts", tmp_path / out, *words)

    done = trained(2, "out", "--data", tmp_path / "data.npz", "--labels", "y", "--epochs", "3", "--json")
    report = json.loads(done.stdout)
    assert report["parts"] == 2
    assert report["bytes_sent"]["forward"] == report["bytes_sent"]["backward"] > 0
    assert report["bytes_sent"]["shared"] > 0
    np.savez(tmp_path / "x.npz", x=x)
    assert not trained(2, "taught", "--data", tmp_path / "x.npz", "--teacher", tmp_path / "teacher.onnx").returncode
    for ranks, data, further, message in (
        (3, "data", (), "expected a multiple of 2 ranks, one for each part, got 3"),
        (4, "data", (), "holds 2 parts: expected as many ranks, got 4"),
        (2, "fewer", (), "expected a sample for each of 60 nodes, got 59"),
        (2, "narrow", (), "input 'x' of the data: expected numbers (samples, 9), got float32 of shape (60, 8)"),
        (2, "data", ("--optimizer", "lion", "--exchange", "signs"), "expected f32 or bits for parts of the plan nodes"),
        (2, "data", ("--loss", "crps"), "expected numbers (60, 6), got float32 of shape (60, 12)"),
    ):
        done = trained(ranks, "other", "--data", tmp_path / f"{data}.npz", "--labels", "y", *further)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_two_ranks_train_what_one_machine_trains(tmp_path: Path) -> None:
    write_case(tmp_path / "rows", "ffnn(depth=2,width=24,density=0.3)")
    assert_trained_alike(tmp_path, 2)


@pytest.mark.slow
def test_two_ranks_train_every_kind_of_network(tmp_path: Path) -> None:
    classes = FinetuneOptions("cross-entropy", "adam", epochs=2, batch=32, rate=1e-3)
    write_case(tmp_path / "a norm", normed(activation="Gelu"))
    write_case(tmp_path / "softmax", normed(end="Softmax"), classes)
    write_case(tmp_path / "log softmax", normed(end="LogSoftmax"), classes)
    write_case(tmp_path / "crps", normed(end="Softplus"), FinetuneOptions("crps", "sgd", epochs=2, batch=32, rate=1e-3))
    write_case(tmp_path / "layers", SPEC, kind="layers")
    write_case(tmp_path / "skip", "ffnn(depth=3,width=33,density=0.1,skip=True)")
    write_case(tmp_path / "nearly dense", "ffnn(depth=2,width=20,density=0.8)")
    assert_trained_alike(tmp_path, 2)


@pytest.mark.slow
def test_three_ranks_train_what_one_machine_trains(tmp_path: Path) -> None:
    write_case(tmp_path / "a norm", normed(), parts=3)
    assert_trained_alike(tmp_path, 3)


@pytest.mark.slow
def test_replicas_of_parts_train_what_one_machine_trains(tmp_path: Path) -> None:
    write_case(tmp_path / "a norm", normed())
    assert_trained_alike(tmp_path, 4)


@pytest.mark.slow
def test_the_command_line_trains_parts_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    write_case(tmp_path / "case", SPEC)
    write_case(tmp_path / "batch", SPEC, kind="batch")
    codes = build(zoo.build("digits_int8"))
    write_parts(codes, PartsRequest("rows", 2, partition_for(RowGraph.of(codes), "rows", 2)), tmp_path / "codes")
    case = tmp_path / "case"
    words = ("--data", case / "data.npz", "--labels", "y")
    data = dict(np.load(case / "data.npz"))
    del data["expected"], data["losses"]
    np.savez(case / "data.npz", **data)
    done = mpiexec(2, REDPEBBLE, "finetune", case / "parts", case / "out", *words, "--epochs", "2", "--json")
    report = json.loads(done.stdout)
    assert report["parts"] == 2
    assert report["bytes_sent"]["forward"] == report["bytes_sent"]["backward"] > 0
    assert report["best"] == 2
    for ranks, parts, further, message in (
        (3, case / "parts", (), "expected a multiple of 2 ranks, one for each part, got 3"),
        (2, tmp_path / "batch" / "parts", (), "expected parts of the plan rows, layers, nodes, got those of batch"),
        (2, tmp_path / "codes", (), "expected layers of floats to train, got some on codes"),
        (2, case / "parts", ("--teacher", "t.onnx"), "one of --labels and"),
    ):
        done = mpiexec(ranks, REDPEBBLE, "finetune", parts, case / "other", *words, *further)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (case / "other").exists()
