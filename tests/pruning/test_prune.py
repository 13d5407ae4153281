"""Models are pruned to what was asked for; what is wrong with model, data or options is said in one line."""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.driver.model_rows import PRUNED_KEY, stated_rows
from redpebble.frontend.errors import UnsupportedModelError
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


def lost(model: ir.Model, pruned: ir.Model, feeds: Feeds) -> float:
    dense, found = (Oracle(one).run(feeds)[0].astype(np.float64) for one in (model, pruned))
    return float(np.square(found - dense).sum() / np.square(dense - dense.mean(axis=0)).sum())


def test_the_loss_and_its_interval_are_those_of_inputs_that_the_data_has_not(model: ir.Model) -> None:
    every = samples(1400)
    report = (result := prune(model, {"x": every[:400]}, sparsity=0.75, rows=16, keep=["deep"])).report
    others = lost(model, result.model, {"x": every[400:]})
    assert 0 < others < 0.1
    assert report.loss == pytest.approx(others, rel=0.2)
    assert report.estimate.interval is not None
    low, high = report.estimate.interval
    assert low < others < high
    assert report.parameter_efficiency == pytest.approx((1 - report.loss) / (2 * 24 * 96 / 1e6))
    assert "25.0% of 18,432 weights left" in repr(result)


@pytest.mark.parametrize("options", [{}, {"precision": "int8"}])
def test_samples_lose_what_onnxruntime_says(options: dict[str, Any], model: ir.Model, data: Feeds) -> None:
    """Magnitudes know nothing of data: all folds have the same weights."""
    result = prune(model, data, sparsity=0.75, rows=16, method="magnitude", **options)
    assert result.report.estimate.samples == (50 if options else 400)
    assert result.report.loss == pytest.approx(lost(model, result.model, data), rel=0.25 if options else 0.02)


def test_it_loses_less_than_zeros_alone_and_than_layers_that_know_nothing_of_each_other(
    fifth: Pruned, model: ir.Model, data: Feeds
) -> None:
    for method in ("magnitude", "wanda"):
        assert prune(model, data, sparsity=0.75, rows=16, keep=["deep"], method=method).report.loss > fifth.report.loss


@pytest.mark.parametrize("method", ["magnitude", "admm"])
def test_a_pruned_weight_has_no_denormals(method: str, data: Feeds) -> None:
    """They would take a hundred times as long as other numbers."""
    model = branched_network()
    for name in ("wl", "wr"):
        value = model.graph.initializers[name].const_value
        assert value is not None
        weight = value.numpy().copy()
        weight[::2, ::3] *= np.float32(1e-38)
        model.graph.initializers[name].const_value = ir.tensor(weight, name=name)
    for weight in weights_of(prune(model, data, sparsity=0.1, rows=16, keep=["deep"], method=method).model).values():
        assert not ((abs(weight) > 0) & (abs(weight) < np.finfo(np.float32).tiny)).any()


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
    assert stated.startswith(f"pruned to 25.0% of 18,432 weights, {fifth.report.estimate}; quality a million weights ")
    assert f" {fifth.report.parameter_efficiency:.3g}, " in stated
    assert "confidence" in stated
    assert fifth.report.predicted_us is None


def test_sessions_compute_what_onnxruntime_does(fifth: Pruned, data: Feeds) -> None:
    (expected,) = Oracle(fifth.model).run(data)
    (found,) = redpebble.session(fifth.model).run(None, dict(data))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_same_data_gives_the_same_bytes_and_batches_are_taken_as_they_are(
    fifth: Pruned, model: ir.Model, data: Feeds
) -> None:
    again = prune(model, data, sparsity=0.75, rows=16, keep=["deep"])
    first, second = (ir.to_proto(one.model).SerializeToString(deterministic=True) for one in (fifth, again))
    assert first == second
    batches = ({"x": data["x"][start : start + 64]} for start in range(0, 400, 64))
    whole = prune(model, batches, sparsity=0.75, rows=16, keep=["deep"])
    assert whole.report.loss == pytest.approx(fifth.report.loss, rel=0.2)


def test_a_structure_of_one_density_is_a_goal(model: ir.Model, data: Feeds) -> None:
    result = prune(model, data, structure="2:8", method="magnitude", rows=16)
    assert result.report.density == 0.25
    assert not np.diff(np.count_nonzero(weights_of(result.model)["wl"].reshape(-1, 8, 96), axis=1)).any()
    with pytest.raises(ValueError, match=r"sparsity: expected 0\.75, that of the structure, got 0\.5"):
        prune(model, data, structure="2:8", sparsity=0.5)


def test_where_nearly_nothing_is_pruned_the_report_says_why(model: ir.Model, data: Feeds) -> None:
    report = prune(model, data, loss=1e-7, rows=256).report
    assert report.density > 0.9
    assert re.fullmatch(
        r"no layer is predicted to become faster by zeros|zeros are predicted to make \d of 3 layers faster, "
        r"which take \d+% of the time; more of them would lose more than 0\.00%",
        report.obstacle,
    )


def digit_classifier(images: NDArray[np.float32], labels: NDArray[Any]) -> onnx.ModelProto:
    """Return 64-512-256-10 with a softmax, which scikit-learn has trained."""
    neural: Any = import_module("sklearn.neural_network")
    trained = neural.MLPClassifier((512, 256), max_iter=60, random_state=0).fit(images, labels)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    digits (float[n, 64] x) => (float[n, 10] y) {
        a = Gemm(x, w0, b0)  b = Relu(a)  c = Gemm(b, w1, b1)  d = Relu(c)  e = Gemm(d, w2, b2)  y = Softmax(e)
    }""")
    for name, arrays in (("w", trained.coefs_), ("b", trained.intercepts_)):
        for number, array in enumerate(arrays):
            tensor = onnx.numpy_helper.from_array(np.asarray(array, np.float32), f"{name}{number}")
            model.graph.initializer.append(tensor)
    return model


@pytest.mark.slow
def test_the_interval_holds_what_digits_lose_that_the_data_has_not() -> None:
    """A few of the digits lose nearly all, and the first ones hardly have one of these: their loss says nothing."""
    digits: Any = import_module("sklearn.datasets").load_digits()
    images, is_test = (digits.data / 16).astype(np.float32), np.random.default_rng(0).permutation(1797) < 400
    dense = ir.from_proto(digit_classifier(images[~is_test], digits.target[~is_test]))
    by_class = np.argsort(digits.target[~is_test][:600], kind="stable")
    for some in (images[~is_test][:300], images[~is_test][:600][by_class]):
        result = prune(dense, {"x": some}, sparsity=0.9)
        interval = result.report.estimate.interval
        assert interval is not None
        assert interval[0] < lost(dense, result.model, {"x": images[is_test]}) < interval[1] < 0.05


@pytest.mark.slow
def test_a_loss_is_kept_on_other_inputs(model: ir.Model) -> None:
    every = samples(1400)
    result = prune(model, {"x": every[:400]}, loss=0.05, rows=16)
    assert 0.025 < result.report.loss <= 0.05
    assert result.report.density < 0.8
    assert lost(model, result.model, {"x": every[400:]}) < 1.2 * 0.05


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
    "names": ({"y": samples(9)}, "expected arrays for x in the data, got y"),
    "type": ({"x": samples(9).astype(np.float64)}, "input 'x' of the data: expected float32, got float64"),
    "shape": ({"x": samples(9)[:, :9]}, r"input 'x' of the data: expected shape \(any, 96\), got \(9, 9\)"),
    "rank": ({"x": samples(9)[0]}, r"input 'x' of the data: expected shape \(any, 96\), got \(96,\)"),
    "nan": (
        {"x": samples(9) * np.float32(np.nan)},
        "input 'x' of the data: expected finite values, got NaN or infinity",
    ),
    "none": ({"x": samples(9)[:0]}, "expected some hundred samples in the data, got none"),
    "no batch": ([], "expected some hundred samples in the data, got none"),
    "few": ({"x": samples(47)}, "layer left of 96 inputs: expected 48 rows of data or more, .*, got 47"),
}


@pytest.mark.parametrize("name", WRONG_DATA)
def test_data_that_does_not_fit_is_refused(name: str, model: ir.Model) -> None:
    feeds, message = WRONG_DATA[name]
    with pytest.raises(ValueError, match=message):
        prune(model, feeds, sparsity=0.5)


WRONG_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "goals": (
        {"sparsity": 0.5, "loss": 0.1},
        "goal: expected one of speedup, time.*, got sparsity and loss",
    ),
    "no goal": ({}, "goal: expected one of .*, got none"),
    "dense": ({"sparsity": 0.0}, "sparsity: expected more than 0 and up to 0.99, got 0.0"),
    "faster": ({"speedup": 1001.0}, "speedup: expected more than 1 and up to 1000, got 1001.0"),
    "no time": ({"time": 0.0}, r"time: expected more than 0, got 0\.0$"),
    "slower": ({"speedup": 0.5}, "speedup: expected more than 1 and up to 1000, got 0.5"),
    "nan": ({"loss": float("nan")}, "loss: expected more than 0 and up to 1, got nan"),
    "rows": ({"sparsity": 0.5, "rows": 0}, "rows: expected 1 or more, got 0"),
    "finetune": ({"sparsity": 0.5, "finetune": -1.0}, "finetune: expected 0 seconds or more, got -1.0"),
    "labels": (
        {"sparsity": 0.5, "labels": np.zeros(400)},
        "labels: expected them only together with finetune, got labels alone",
    ),
    "precision": ({"sparsity": 0.5, "precision": "f16"}, "precision: expected f32, int8 or int4, got 'f16'"),
    "keep": (
        {"sparsity": 0.5, "keep": ["lost"]},
        "layer to keep: expected one of left, right, deep, head.*, got 'lost'",
    ),
    "structure": ({"sparsity": 0.7, "structure": "2:4"}, "sparsity: expected 0.5, that of the structure, got 0.7"),
    "method": ({"sparsity": 0.7, "method": "best"}, "method: expected one of admm, .*, got 'best'"),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
def test_options_that_mean_nothing_are_refused(name: str, model: ir.Model, data: Feeds) -> None:
    options, message = WRONG_OPTIONS[name]
    with pytest.raises(ValueError, match=message):
        prune(model, data, **options)


def test_a_model_without_layers_is_refused() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> none (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }'
    with pytest.raises(
        UnsupportedModelError, match=r"expected MatMul, Gemm, Conv, LSTM, GRU, RNN .*, got no layer to prune"
    ):
        prune(onnx.parser.parse_model(text), {"x": samples(9)[:, :4]}, sparsity=0.5)


def test_values_that_overflow_inside_are_named(model: ir.Model) -> None:
    with pytest.raises(ValueError, match="layer left: expected finite values from the data, got NaN or infinity"):
        prune(model, {"x": samples(99) * np.float32(1e30)}, sparsity=0.5)
