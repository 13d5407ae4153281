"""Models are pruned to what was asked for; what is wrong with model, data or options is said in one line."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.model_rows import PRUNED_KEY, stated_rows
from redpebble.pruning.prune import prune
from redpebble.pruning.report import Pruned
from redpebble.pruning.solving.methods import METHODS, Array, Method, Sparsity
from redpebble.pruning.solving.structures import STRUCTURES, Mask, Scores, Structure
from redpebble.verification.oracle import Oracle
from tests.pruning.dense_networks import branched_network, samples

Feeds = Mapping[str, NDArray[Any]]


def weights_of(model: ir.Model) -> dict[str, NDArray[Any]]:
    tensors = {name: value.const_value for name, value in model.graph.initializers.items()}
    return {name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None and name.startswith("w")}


@pytest.fixture(scope="module")
def model() -> ir.Model:
    return branched_network()


@pytest.fixture(scope="module")
def data() -> dict[str, NDArray[np.float32]]:
    return {"x": samples(400)}


@pytest.fixture(scope="module")
def fifth(model: ir.Model, data: Feeds) -> Pruned:
    return prune(model, data, sparsity=0.75, rows=16, keep=["deep"])


def test_weights_keep_equal_counts_and_what_is_kept_or_small_stays(fifth: Pruned, model: ir.Model) -> None:
    before, after = weights_of(model), weights_of(fifth.model)
    assert set(np.count_nonzero(after["wl"], axis=0)) == {24}
    assert set(np.count_nonzero(after["wr"], axis=1)) == {24}
    for name in ("wd", "wh"):
        assert np.array_equal(before[name], after[name])
    assert [layer.name for layer in fifth.report.layers] == ["left", "right"]
    assert fifth.report.density == 0.25
    assert stated_rows(fifth.model) == fifth.report.rows == 16


def test_the_report_says_what_the_outputs_of_samples_that_are_held_out_lose(
    fifth: Pruned, model: ir.Model, data: Feeds
) -> None:
    # the last of each batch of 64
    places = np.arange(400) % 64
    held_out = {"x": data["x"][(places >= 56) | (np.arange(400) >= 398)]}
    assert fifth.report.held_out == len(held_out["x"]) == 50
    dense, found = (Oracle(one).run(held_out)[0].astype(np.float64) for one in (model, fifth.model))
    lost = np.square(found - dense).sum() / np.square(dense - dense.mean(axis=0)).sum()
    assert fifth.report.loss == pytest.approx(lost, rel=1e-3)
    assert 0 < lost < 0.1
    assert fifth.report.parameter_efficiency == pytest.approx((1 - lost) / (2 * 24 * 96 / 1e6), rel=1e-3)
    assert "25.0% of 18,432 weights left" in repr(fifth)


def test_it_loses_less_than_zeros_alone_and_than_layers_that_know_nothing_of_each_other(
    fifth: Pruned, model: ir.Model, data: Feeds
) -> None:
    for method in ("magnitude", "wanda"):
        assert prune(model, data, sparsity=0.75, rows=16, keep=["deep"], method=method).report.loss > fifth.report.loss


def test_structures_and_methods_of_ones_own_are_taken_by_name_or_as_they_are(model: ir.Model, data: Feeds) -> None:
    def every_other(scores: Scores, density: float) -> Mask:
        mask = np.zeros(scores.shape, dtype=np.bool_)
        mask[:: round(1 / density)] = True
        return mask

    def cut(weight: Array, hessian: Array, sparsity: Sparsity) -> Array:
        assert hessian.shape == (len(weight), len(weight))
        return weight * sparsity.mask(abs(weight))

    own = Structure(every_other), Method(cut, refits=False)
    given = prune(model, data, sparsity=0.5, rows=16, structure=own[0], method=own[1])
    with STRUCTURES.extended({"other": lambda _: own[0]}), METHODS.extended({"cut": own[1]}):
        named = prune(model, data, sparsity=0.5, rows=16, structure="other", method="cut")
    before = weights_of(model)
    for name, weight in weights_of(given.model).items():
        assert np.array_equal(weight, weights_of(named.model)[name])
        if name == "wl":
            assert np.array_equal(weight[::2], before[name][::2])
            assert not weight[1::2].any()


def test_a_pruned_model_states_its_parameter_efficiency(fifth: Pruned) -> None:
    stated = fifth.model.metadata_props[PRUNED_KEY]
    assert stated.startswith("pruned to 25.0% of 18,432 weights, quality 0.9")
    assert f"{fifth.report.parameter_efficiency:.3g} a million weights" in stated
    assert fifth.report.predicted_us is None


def test_sessions_compute_what_onnxruntime_does(fifth: Pruned, data: Feeds) -> None:
    (expected,) = Oracle(fifth.model).run(data)
    (found,) = redpebble.session(fifth.model).run(None, dict(data))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_same_data_gives_the_same_bytes_however_it_comes(fifth: Pruned, model: ir.Model, data: Feeds) -> None:
    batches = ({"x": data["x"][start : start + 64]} for start in range(0, 400, 64))
    again = prune(model, batches, sparsity=0.75, rows=16, keep=["deep"])
    first, second = (ir.to_proto(one.model).SerializeToString(deterministic=True) for one in (fifth, again))
    assert first == second


@pytest.mark.slow
def test_a_loss_is_kept_on_other_inputs(model: ir.Model) -> None:
    every = samples(1400)
    result = prune(model, {"x": every[:400]}, loss=0.05, rows=16)
    assert 0.025 < result.report.loss <= 0.05
    assert result.report.density < 0.8
    others = {"x": every[400:]}
    dense, found = (Oracle(one).run(others)[0].astype(np.float64) for one in (model, result.model))
    lost = np.square(found - dense).sum() / np.square(dense - dense.mean(axis=0)).sum()
    assert lost < 1.2 * 0.05


@pytest.mark.slow
def test_a_speedup_is_reached_by_the_clock() -> None:
    rng, width = np.random.default_rng(0), 512
    low = rng.standard_normal((width, 64)) @ rng.standard_normal((64, width)) / 64 / width**0.5
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        wide (float[n, {width}] x) => (float[n, {width}] y) {{ h = MatMul(x, a)  r = Relu(h)  y = MatMul(r, b) }}"""
    wide = onnx.parser.parse_model(text)
    for name in "ab":
        wide.graph.initializer.append(onnx.numpy_helper.from_array(low.astype(np.float32), name))
    data = rng.standard_normal((4000, width)).astype(np.float32)
    report = prune(wide, {"x": data}, speedup=3.0, rows=64).report
    assert report.measured.speedup > 2.0
    assert report.loss < 0.5


WRONG_DATA: dict[str, tuple[Feeds | list[Feeds], str]] = {
    "names": ({"y": samples(9)}, "the data holds y, accepted are arrays for x"),
    "type": ({"x": samples(9).astype(np.float64)}, "input 'x' of the data is float64, accepted is float32"),
    "shape": ({"x": samples(9)[:, :9]}, r"input 'x' of the data has shape \(9, 9\), accepted is \(any, 96\)"),
    "rank": ({"x": samples(9)[0]}, r"input 'x' of the data has shape \(96,\), accepted is \(any, 96\)"),
    "nan": ({"x": samples(9) * np.float32(np.nan)}, "input 'x' of the data has NaN or infinity"),
    "none": ({"x": samples(9)[:0]}, "the data has no samples, accepted are some hundred"),
    "no batch": ([], "the data has no samples, accepted are some hundred"),
    "few": ({"x": samples(47)}, "layer left has 96 inputs and 47 rows of data, accepted are 48"),
}


@pytest.mark.parametrize("name", WRONG_DATA)
def test_data_that_does_not_fit_is_refused(name: str, model: ir.Model) -> None:
    feeds, message = WRONG_DATA[name]
    with pytest.raises(ValueError, match=message):
        prune(model, feeds, sparsity=0.5)


WRONG_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "goals": ({"sparsity": 0.5, "loss": 0.1}, "goal is sparsity, loss, accepted is one of speedup, time, sparsity"),
    "no goal": ({}, "goal is nothing, accepted is one of"),
    "dense": ({"sparsity": 0.0}, "sparsity is 0.0, accepted is more than 0 and up to 0.99"),
    "slower": ({"speedup": 0.5}, "speedup is 0.5, accepted is more than 1"),
    "nan": ({"loss": float("nan")}, "loss is nan, accepted is more than 0"),
    "rows": ({"sparsity": 0.5, "rows": 0}, "rows is 0, accepted is 1 or more"),
    "finetune": ({"sparsity": 0.5, "finetune": -1.0}, "finetune is -1.0 seconds, expected 0 or more"),
    "labels": (
        {"sparsity": 0.5, "labels": np.zeros(400)},
        "labels are for finetuning, accepted together with finetune",
    ),
    "precision": ({"sparsity": 0.5, "precision": "f16"}, "precision is 'f16', accepted is f32 or int8"),
    "keep": ({"sparsity": 0.5, "keep": ["lost"]}, "no layer 'lost' to keep, accepted are left, right, deep, head"),
    "structure": ({"sparsity": 0.7, "structure": "2:4"}, "sparsity is 0.7, accepted is 0.5, that of the structure"),
    "method": ({"sparsity": 0.7, "method": "best"}, "unknown method 'best', accepted are admm"),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
def test_options_that_mean_nothing_are_refused(name: str, model: ir.Model, data: Feeds) -> None:
    options, message = WRONG_OPTIONS[name]
    with pytest.raises(ValueError, match=message):
        prune(model, data, **options)


def test_a_model_without_layers_is_refused() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> none (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }'
    with pytest.raises(UnsupportedModelError, match="no layer to prune, accepted are MatMul, Gemm and Conv"):
        prune(onnx.parser.parse_model(text), {"x": samples(9)[:, :4]}, sparsity=0.5)


def test_values_that_overflow_inside_are_named(model: ir.Model) -> None:
    with pytest.raises(ValueError, match="layer left gets NaN or infinity from the data"):
        prune(model, {"x": samples(99) * np.float32(1e30)}, sparsity=0.5)
