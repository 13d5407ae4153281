import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from redpebble.models import digits, digits_training, zoo
from redpebble.models.digits import Layer, compact_model, digits_accuracy, digits_record, digits_test_set, read_layers
from redpebble.models.digits_training import Training
from tests.models.zoo_oracle import checked, density, run, session, weights

BRIEF = Training(dense_epochs=1, pruning_epochs=1, final_epochs=1)


def test_the_committed_files_are_small_and_are_those_of_the_record() -> None:
    assert digits.MODEL_FILE.stat().st_size <= 500_000
    assert digits.TEST_FILE.stat().st_size <= 100_000
    assert digits_record()["sha256"] == hashlib.sha256(digits.MODEL_FILE.read_bytes()).hexdigest()


@pytest.mark.parametrize("compact", [False, True])
def test_onnxruntime_finds_the_recorded_accuracy(compact: bool) -> None:
    model = digits.compact_digits() if compact else zoo.build("digits")
    checked(model)
    answering = session(model)

    def logits(images: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(answering.run(None, {"x": images})[0])

    record = digits_record()
    assert digits_accuracy(logits) == record["accuracy_pruned"]
    assert record["accuracy_pruned"] >= 0.97
    assert record["accuracy_dense"] >= 0.97


def test_the_recorded_sparsity_is_95_percent_and_is_there() -> None:
    found = {name: 1 - density(weight) for name, weight in weights(zoo.build("digits")).items()}
    assert found == pytest.approx(digits_record()["sparsity"], abs=1e-12)
    assert all(sparsity == pytest.approx(0.95, abs=1e-4) for sparsity in found.values())
    assert [weight.shape for weight in weights(zoo.build("digits")).values()] == [(1024, 64), (1024, 1024), (10, 1024)]


def test_the_committed_images_are_the_held_out_ones_of_scikit_learn() -> None:
    pixels, labels = load_digits(return_X_y=True)
    held_out = np.random.default_rng(digits_record()["seed"]).permutation(1797)[-360:]
    stored = digits_test_set()
    assert np.array_equal(stored.images * 16, pixels[held_out])
    assert np.array_equal(stored.labels, labels[held_out])


def test_the_greatest_inputs_are_those_of_training_images() -> None:
    record = digits_record()
    images = digits_training.split_digits(record["seed"])[0].images
    layers = read_layers(digits.compact_digits())
    assert record["greatest_inputs"] == pytest.approx(digits_training.greatest_inputs(layers, images), rel=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.05, 1.0])
def test_compact_weights_come_back_whatever_the_gaps(share: float) -> None:
    rng = np.random.default_rng(0)
    shapes = [(40, 30), (3, 40)]
    layers = [
        Layer(
            np.where(rng.random(shape) < share, rng.standard_normal(shape), 0).astype(np.float32),
            rng.standard_normal(shape[0]).astype(np.float32),
        )
        for shape in shapes
    ]
    model = compact_model(layers)
    for layer, read in zip(layers, read_layers(model), strict=True):
        assert np.array_equal(layer.weight, read.weight)
        assert np.array_equal(layer.bias, read.bias)
    x = rng.standard_normal((4, 30)).astype(np.float32)
    assert np.array_equal(run(model, {"x": x})[0], run(digits.dense_model(layers), {"x": x})[0])


@pytest.mark.slow
def test_training_is_deterministic_and_a_pruned_weight_stays_pruned(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        digits_training.write(BRIEF, folder)
    files = sorted(file.name for file in folders[0].iterdir())
    assert files == ["digits.json", "digits.onnx", "digits_test.npz"]
    assert all((folders[0] / file).read_bytes() == (folders[1] / file).read_bytes() for file in files)


@pytest.mark.slow
def test_training_again_gives_a_model_as_good(tmp_path: Path) -> None:
    training_set, test_set = digits_training.split_digits(1)
    trained = digits_training.train(training_set, Training(seed=1))
    assert digits_training.accuracy(trained.pruned, test_set) >= 0.97
    assert all(density(layer.weight) == pytest.approx(0.05, abs=1e-4) for layer in trained.pruned)
