from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.frontend.import_model import import_model
from redpebble.models import zoo
from redpebble.models.radixnet import BIASES, RadixNet, base_layer_count, radixnet_images, radixnet_patterns
from tests.models.zoo_oracle import run, serialized

NEURONS = 1024
CLASSES = NEURONS // 16


def challenge_layers(layer_count: int, seed: int) -> list[NDArray[np.float64]]:
    """The challenge's own construction, connection by connection; permutations as the recipe draws them."""
    rng = np.random.default_rng(seed)
    layers: list[NDArray[np.float64]] = []
    for layer in range(layer_count):
        weight = np.zeros((NEURONS, NEURONS))
        inputs, copies = np.divmod(np.arange(NEURONS * 16), 16)
        for stride in (0, 2 ** (layer % 6)):
            weight[inputs, copies * CLASSES + (inputs % CLASSES + stride) % CLASSES] = 1 / 16
        layers.append(weight if layer < 6 else weight[rng.permutation(NEURONS)])
    return layers


def challenge(y: NDArray[np.float64], layers: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Bias only where Z is not 0, as the challenge says it."""
    for weight in layers:
        z = y @ weight
        z[z != 0] += BIASES[NEURONS]
        y = np.clip(z, 0, 32)
    return y


def test_onnxruntime_agrees_with_the_recurrence_of_the_challenge() -> None:
    images = radixnet_images(NEURONS, 40, np.random.default_rng(0))
    (y,) = run(zoo.build("radixnet(layers=14)", seed=2), {"y0": images})
    assert (y != 0).any()
    np.testing.assert_allclose(y, challenge(images.astype(np.float64), challenge_layers(14, 2)), rtol=1e-4, atol=1e-5)


def test_every_neuron_has_32_connections_each_way() -> None:
    for layer in challenge_layers(8, 0):
        assert (np.count_nonzero(layer, axis=0) == 32).all()
        assert (np.count_nonzero(layer, axis=1) == 32).all()


@pytest.mark.slow
def test_most_rows_die_within_ten_layers_and_a_zero_row_stays_zero() -> None:
    images = radixnet_images(NEURONS, 1000, np.random.default_rng(0))
    images[0] = 0
    (y,) = run(zoo.build("radixnet(layers=10)"), {"y0": images})
    live = (y != 0).any(axis=1)
    assert 0.005 < live.mean() < 0.1
    assert not live[0]


@pytest.mark.parametrize(("neurons", "base_layers"), [(1024, 6), (4096, 8), (16384, 10), (65536, 12)])
def test_the_challenge_sizes_have_their_base_layers(neurons: int, base_layers: int) -> None:
    assert base_layer_count(neurons) == base_layers


@pytest.mark.parametrize(
    ("neurons", "layers", "largest"), [(1024, 120, 400_000), (4096, 120, 1_200_000), (65536, 24, 3_500_000)]
)
def test_networks_are_small_on_disk(neurons: int, layers: int, largest: int) -> None:
    """The dense weights would be 503 MB, 8 GB and 412 GB."""
    model = RadixNet(neurons, layers).build(np.random.default_rng(0))
    assert len(serialized(model)) <= largest


def test_the_compact_form_is_the_same_network() -> None:
    images = {"y0": radixnet_images(NEURONS, 20, np.random.default_rng(0))}
    (expected,) = run(zoo.build("radixnet(layers=8)", seed=2), images)
    (y,) = run(zoo.build("radixnet(layers=8, compact=True)", seed=2), images)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("compact", [False, True])
def test_wide_networks_are_read_connection_by_connection(compact: bool, tmp_path: Path) -> None:
    """A dense layer would take 17 GB."""
    zoo.save(zoo.build(f"radixnet(neurons=65536, layers=1, compact={compact})"), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").exists() == compact
    module = import_model(tmp_path / "m.onnx", foreign="refuse").module
    (weight,) = (op.weight for op in module.walk() if isinstance(op, SparseConstantOp))
    (pattern,) = radixnet_patterns(RadixNet(65536, 1), np.random.default_rng(0))
    np.testing.assert_array_equal(weight.pointers, pattern.pointers)
    np.testing.assert_array_equal(weight.rows, pattern.indices)
    assert set(weight.values.tolist()) == {1 / 16}


def test_base_layers_are_written_once() -> None:
    model = zoo.build("radixnet(layers=120)")
    counts = {kind: sum(node.op_type == kind for node in model.graph) for kind in ("ScatterElements", "Tile", "Gather")}
    assert counts == {"ScatterElements": 6, "Tile": 6, "Gather": 114}


def test_images_are_binary_with_about_a_tenth_ones() -> None:
    images = radixnet_images(4096, 200, np.random.default_rng(0))
    assert images.shape == (200, 4096)
    assert images.dtype == np.float32
    assert set(np.unique(images)) == {0.0, 1.0}
    assert 0.07 < images.mean() < 0.13
    assert images.any(axis=1).all()


def test_an_empty_batch_runs() -> None:
    (y,) = run(zoo.build("radixnet(layers=2)"), {"y0": np.zeros((0, NEURONS), dtype=np.float32)})
    assert y.shape == (0, NEURONS)


def test_patterns_without_weights_are_those_of_the_challenge() -> None:
    patterns = radixnet_patterns(RadixNet(NEURONS, 9), np.random.default_rng(2))
    for pattern, weight in zip(patterns, challenge_layers(9, 2), strict=True):
        outputs, inputs = np.nonzero(weight.T)
        np.testing.assert_array_equal(pattern.rows, outputs)
        np.testing.assert_array_equal(pattern.indices, inputs)
