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


@pytest.mark.parametrize("zeros", [80, 90])
def test_the_trained_network_is_as_good_as_its_record_says_and_pruned(zeros: int) -> None:
    record, model = digits_cnn.cnn_record(zeros), zoo.build(f"digits_cnn(zeros={zeros})")
    assert digits_cnn.weights_file(zeros).stat().st_size <= 300_000
    assert accuracy(lambda images: run(model, {"x": images})[0]) == pytest.approx(record["accuracy_pruned"], abs=0.003)
    assert record["accuracy_pruned"] >= record["accuracy_dense"] - 0.005
    weights = digits_cnn.read_weights(digits_cnn.weights_file(zeros))
    for name, sparsity in record["sparsity"].items():
        assert float((weights[name] == 0).mean()) == pytest.approx(sparsity, abs=1e-12)
        assert sparsity > zeros / 100 - 0.01 or name == "layers.0.weight"


def test_a_share_of_zeros_that_nobody_trained_is_refused() -> None:
    with pytest.raises(ValueError, match="zeros: expected 80 or 90, got 85"):
        zoo.build("digits_cnn(zeros=85)")


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
