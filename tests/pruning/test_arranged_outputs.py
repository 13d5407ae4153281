"""Files pruned to V:N:M are V:N:M as they lie, and their outputs are in the order that they had."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

import redpebble
from redpebble.models import zoo
from redpebble.models.graph_builder import GraphBuilder, Output
from redpebble.pruning.arranged_outputs import arranged
from redpebble.pruning.report import Pruned
from redpebble.pruning.source_model import SourceModel
from redpebble.verification.oracle import Oracle
from tests.pruning.dense_networks import WIDTH, branched_network, samples, weight_of
from tests.pruning.test_recurrences import data, tagger

Array = NDArray[np.float32]


def product_weights(path: Path) -> dict[str, Array]:
    """Return the constant weights [outputs, inputs] of all products of a file, by node."""
    graph = onnx.ModelProto.FromString(path.read_bytes()).graph
    stored = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    found = dict[str, Array]()
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in stored:
            is_turned = any(one.name == "transB" and one.i for one in node.attribute)
            weight = stored[node.input[1]]
            found[node.name] = weight if is_turned else weight.T
    return found


def is_v_n_m(weight: Array, v: int, n: int, m: int) -> bool:
    """Return whether each v rows share 4 columns of every m, of which a row keeps n: what a reader of VENOM expects."""
    for row in range(0, len(weight), v):
        for column in range(0, weight.shape[1], m):
            block = weight[row : row + v, column : column + m] != 0
            if block.any(axis=0).sum() > 4 or block.sum(axis=1).max() > n:
                return False
    return True


def gathered(weight: Array, v: int, m: int) -> Array:
    """Return the shared columns alone, 4 for each m, [outputs, inputs * 4 / m]: what sparse tensor cores multiply."""
    parts = list[Array]()
    for row in range(0, len(weight), v):
        blocks = [weight[row : row + v, column : column + m] for column in range(0, weight.shape[1], m)]
        # columns that anything reads first, in their order; others fill up
        chosen = [np.sort(np.argsort(~(one != 0).any(axis=0), kind="stable")[:4]) for one in blocks]
        parts.append(np.concatenate([one[:, places] for one, places in zip(blocks, chosen, strict=True)], axis=1))
    return np.concatenate(parts)


def saved(result: Pruned, folder: Path) -> Path:
    result.save(folder / "pruned.onnx")
    return folder / "pruned.onnx"


@pytest.mark.parametrize("method", ["obs", "sparsegpt", "admm", "magnitude"])
def test_a_pruned_file_is_v_n_m_in_its_natural_order(method: str, tmp_path: Path) -> None:
    result = redpebble.prune(branched_network(), {"x": samples(300)}, structure="16:2:8", method=method, rows=16)
    weights = product_weights(saved(result, tmp_path))
    assert set(weights) == {"left", "right", "deep", "head"}
    for name in ("left", "right", "deep"):
        assert is_v_n_m(weights[name], 16, 2, 8)
        assert is_v_n_m(gathered(weights[name], 16, 8), 1, 2, 4)
        assert np.count_nonzero(gathered(weights[name], 16, 8)) == np.count_nonzero(weights[name]) == 96 * 24


def test_a_mask_that_is_valid_up_to_a_permutation_is_found_invalid() -> None:
    mask = zoo.build("structured(pattern='vnm',width=64,depth=1,shuffled=True)")
    tensors = [one.const_value for one in mask.graph.initializers.values()]
    (weight,) = (one.numpy() for one in tensors if one is not None and one.shape == (64, 64))
    assert not is_v_n_m(weight, 16, 2, 8)


def gated_network() -> ir.Model:
    """Return x -> two layers, one the gate of the other, a layer, and an output that is wide."""
    rng, builder = np.random.default_rng(0), GraphBuilder()
    x = builder.input("x", ("batch", 96))
    gate = builder.op("MatMul", [x, builder.constant("wg", weight_of(96, 128, rng))], "gate")
    up = builder.op("MatMul", [x, builder.constant("wu", weight_of(96, 128, rng))], "up")
    biased = builder.op("Add", [builder.constant("bu", rng.random(128, np.float32)), up], "biased")
    hidden = builder.op("Mul", [builder.op("Sigmoid", [gate], "sigmoid"), biased], "hidden")
    down = builder.op("MatMul", [hidden, builder.constant("wd", weight_of(128, 80, rng))], "down")
    return builder.model("gated", {"y": Output(down, ("batch", 80))})


@pytest.mark.parametrize(
    ("model", "moved"),
    [
        (branched_network(), {"left", "right", "deep"}),
        (gated_network(), {"gate", "up", "down"}),
    ],
    ids=["branched", "gated"],
)
def test_what_was_arranged_has_the_results_that_it_had(model: ir.Model, moved: set[str], tmp_path: Path) -> None:
    feeds = {"x": samples(200)}
    before = SourceModel.read(model, ())
    after = arranged(before, [feeds], 16)
    assert {name for name in before.dense if not np.array_equal(before.dense[name], after.dense[name])} >= moved
    (expected,), (found,) = (Oracle(one.with_weights({})).run(feeds) for one in (before, after))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_wide_output_is_put_back_by_a_gather(tmp_path: Path) -> None:
    feeds = {"x": samples(300)}
    result = redpebble.prune(gated_network(), feeds, structure="16:2:8", method="obs", rows=16)
    path = saved(result, tmp_path)
    graph = onnx.ModelProto.FromString(path.read_bytes()).graph
    assert graph.node[-1].op_type == "Gather"
    assert [one.name for one in graph.output] == ["y"]
    weights = product_weights(path)
    assert all(is_v_n_m(weights[name], 16, 2, 8) for name in ("gate", "up", "down"))
    (expected,), (found,) = Oracle(path).run(feeds), redpebble.session(path).run(None, dict[str, Any](feeds))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    (dense,) = Oracle(gated_network()).run(feeds)
    # the columns are those of the dense model, not others
    assert np.corrcoef(dense.T, expected.T)[:80, 80:].diagonal().min() > 0.5


def test_alike_outputs_beside_each_other_lose_less_than_any() -> None:
    """Two kinds of outputs that read different inputs, in turn."""
    rng, builder = np.random.default_rng(0), GraphBuilder()
    weight = 0.01 * rng.standard_normal((64, 64)).astype(np.float32)
    weight = 0.01 * rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
    weight[::4, ::2] += 1
    weight[1::4, 1::2] += 1
    x = builder.input("x", ("batch", WIDTH))
    hidden = builder.op("Relu", [builder.op("MatMul", [x, builder.constant("w1", weight)], "first")], "relu")
    y = builder.op("MatMul", [hidden, builder.constant("w2", weight_of(WIDTH, 96, rng))], "second")
    model = builder.model("kinds", {"y": Output(y, ("batch", 96))})
    first = arranged(SourceModel.read(model, ()), [{"x": samples(300)}], WIDTH // 2).dense["first"]
    kinds = first[::4].sum(axis=0) > WIDTH / 8
    assert kinds[: WIDTH // 2].all() != kinds[WIDTH // 2 :].all()
    assert kinds[: WIDTH // 2].any() != kinds[WIDTH // 2 :].any()


def test_residuals_that_are_normalised_stay_in_their_order() -> None:
    before = SourceModel.read(zoo.build("bert_layer(density=1.0)"), ())
    ones = np.ones((8, 768), np.float32)
    after = arranged(before, [{"hidden": ones, "context": ones}], 64)
    same = {name for name in before.dense if np.array_equal(before.dense[name], after.dense[name])}
    narrowed = [name for name, weight in before.dense.items() if weight.shape == (3072, 768)]
    assert len(same) == 1
    assert len(narrowed) == 1
    # rows follow the layer before, columns stay
    assert not same & set(narrowed)
    assert np.array_equal(np.sort(before.dense[narrowed[0]], axis=0), np.sort(after.dense[narrowed[0]], axis=0))


def test_a_head_behind_a_recurrence_is_arranged_and_the_recurrence_is_v_n_m_where_it_stands(tmp_path: Path) -> None:
    result = redpebble.prune(tagger(), data(), structure="16:2:8", rows=16)
    path = saved(result, tmp_path)
    assert is_v_n_m(product_weights(path)["head"], 16, 2, 8)
    held = {
        one.name: numpy_helper.to_array(one) for one in onnx.ModelProto.FromString(path.read_bytes()).graph.initializer
    }
    assert is_v_n_m(held["w"].reshape(-1, held["w"].shape[-1]), 16, 2, 8)
    (expected,), (found,) = (Oracle(one).run(data()) for one in (ir.from_proto(tagger()), path))
    assert expected.shape == found.shape
    assert np.corrcoef(expected.reshape(-1, 64).T, found.reshape(-1, 64).T)[:64, 64:].diagonal().min() > 0.3
