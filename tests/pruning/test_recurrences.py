"""Recurrences are pruned: their two weights as layers, of which that of the states goes by magnitude."""

import numpy as np
import onnx
import onnx_ir
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.pruning.prune import prune
from redpebble.verification.oracle import Oracle
from tests.support.recurrent_models import Recurrent

CELL = Recurrent("LSTM", 40, 30, density=1.0, direction="bidirectional")


def tagger(cell: Recurrent = CELL) -> onnx.ModelProto:
    """Samples first outside, a recurrence, and a layer of all its states, as torch writes it."""
    width = cell.directions * cell.hidden
    rng = np.random.default_rng(3)
    held = {one.name: numpy_helper.to_array(one) for one in cell.model().graph.initializer}
    held |= {"sides": np.array([0, 0, width], np.int64)}
    held["head"] = (rng.standard_normal((width, 64)) / np.sqrt(width)).astype(np.float32)
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        helper.make_node(
            cell.operator, ["steps", "w", "r", "b"], ["y"], "cell", hidden_size=cell.hidden, direction=cell.direction
        ),
        helper.make_node("Transpose", ["y"], ["turned"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["turned", "sides"], ["rows"]),
        helper.make_node("MatMul", ["rows", "head"], ["scores"], "head"),
    ]
    graph = helper.make_graph(
        nodes,
        "tagger",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "steps", cell.inputs])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", "steps", 64])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def data(seed: int = 4) -> dict[str, NDArray[np.float32]]:
    return {"x": np.random.default_rng(seed).standard_normal((100, 5, CELL.inputs)).astype(np.float32)}


def held_by(model: onnx_ir.Model) -> dict[str, NDArray[np.float32]]:
    held = {name: value.const_value for name, value in model.graph.initializers.items()}
    return {name: value.numpy() for name, value in held.items() if value is not None}


def test_both_weights_of_a_recurrence_are_pruned_and_the_loss_is_that_of_onnxruntime() -> None:
    model, feeds = tagger(), data()
    result = prune(model, feeds, sparsity=0.5, rows=16)
    assert [layer.name for layer in result.report.layers] == ["cell.W", "cell.R", "head"]
    held = held_by(result.model)
    dense = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    for name in ("w", "r"):
        assert held[name].shape == dense[name].shape
        counts = np.count_nonzero(held[name], axis=-1)
        assert np.array_equal(counts, np.full_like(counts, held[name].shape[-1] // 2))
    # what is kept of the states is the largest of each gate, as it was
    rows = np.abs(dense["r"])
    kept = np.sort(np.where(held["r"] != 0, rows, np.inf), axis=-1)[..., 0]
    assert np.all(kept >= np.sort(rows, axis=-1)[..., rows.shape[-1] // 2])
    np.testing.assert_allclose(held["r"], np.where(held["r"] != 0, dense["r"], 0), rtol=1e-5)
    feeds = data(5)
    (found,), (wanted,) = Oracle(result.model).run(feeds), Oracle(onnx_ir.from_proto(model)).run(feeds)
    lost = float(np.square(found - wanted).sum() / np.square(wanted - wanted.mean(axis=0)).sum())
    assert 0.01 < lost < 0.3
    assert result.report.loss == pytest.approx(lost, rel=0.3)


@pytest.mark.parametrize(
    ("keep", "left"), [("cell.R", ["cell.W", "head"]), pytest.param("cell", ["head"], marks=pytest.mark.slow)]
)
def test_a_recurrence_is_kept_as_a_whole_or_by_weight(keep: str, left: list[str]) -> None:
    result = prune(tagger(), data(), sparsity=0.5, rows=16, keep=[keep])
    assert [layer.name for layer in result.report.layers] == left
    assert np.count_nonzero(held_by(result.model)["r"]) == 2 * 160 * 40


def test_a_layer_to_keep_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"layer to keep: expected one of cell\.W, cell\.R, head, got 'nothing'"):
        prune(tagger(), data(), sparsity=0.5, keep=["nothing"])


@pytest.mark.slow
def test_a_pruned_recurrence_is_taken_by_a_session_and_becomes_faster() -> None:
    cell = Recurrent("LSTM", 192, 128, density=1.0)
    x = np.random.default_rng(5).standard_normal((64, 20, 128)).astype(np.float32)
    result = prune(tagger(cell), {"x": x}, sparsity=0.9, rows=20)
    assert result.report.measured.speedup > 1.2
    session = redpebble.session(result.model)
    (found,), (wanted,) = session.run(None, {"x": x[:3]}), Oracle(result.model).run({"x": x[:3]})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
