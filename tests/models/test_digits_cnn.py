from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.models import digits_cnn, zoo
from redpebble.models.digits import digits_test_set
from tests.models.zoo_oracle import run

Run = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def accuracy(answer: Run) -> float:
    images, labels = digits_test_set()
    return float((answer(images.reshape(-1, 1, 8, 8)).argmax(axis=1) == labels).mean())


def test_the_trained_network_is_as_good_as_its_record_says_and_pruned() -> None:
    record, model = digits_cnn.cnn_record(), zoo.build("digits_cnn")
    assert digits_cnn.weights_file().stat().st_size <= 250_000
    assert accuracy(lambda images: run(model, {"x": images})[0]) == pytest.approx(record["accuracy_pruned"], abs=0.003)
    assert record["accuracy_pruned"] >= record["accuracy_dense"] - 0.015
    weights = digits_cnn.read_weights(digits_cnn.weights_file())
    for name, sparsity in record["sparsity"].items():
        assert float((weights[name] == 0).mean()) == pytest.approx(sparsity, abs=1e-12)
        assert sparsity > 0.89 or name == "layers.0.weight"


def test_the_trained_network_keeps_its_accuracy_natively() -> None:
    proto = onnx_ir.to_proto(zoo.build("digits_cnn"))
    compiled = redpebble.compile(proto)
    images = digits_test_set().images.reshape(-1, 1, 8, 8)
    (expected,) = run(zoo.build("digits_cnn"), {"x": images})
    np.testing.assert_allclose(compiled.run(None, {"x": images})[0], expected, rtol=1e-4, atol=1e-4)


def test_weights_come_back_from_the_file_that_they_are_written_to(tmp_path: Path) -> None:
    weights = digits_cnn.read_weights(digits_cnn.weights_file())
    digits_cnn.write_weights(tmp_path / "weights.npz", weights)
    again = digits_cnn.read_weights(tmp_path / "weights.npz")
    assert all(np.array_equal(weights[name], again[name]) for name in digits_cnn.weight_shapes())
