"""Scripts that train models of the zoo: they run on small data, and what they write is sparse."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

from redpebble.models.digits import DigitImages  # noqa: E402
from redpebble.models.digits_cnn import read_weights, write_weights  # noqa: E402
from redpebble.models.sentences.encoder import Encoder, pooled  # noqa: E402
from redpebble.models.sentences.stored import sparsity  # noqa: E402
from redpebble.pytorch.recipes import digits_cnn, resnet18, sentences  # noqa: E402
from tests.models.test_sentences import tiny_base  # noqa: E402

torch.set_num_threads(1)


def test_a_network_of_digits_is_pruned_and_trained(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = DigitImages(rng.random((128, 64), dtype=np.float32), rng.integers(0, 10, 128))
    dense = digits_cnn.trained(data, 0, steps=2)
    student = digits_cnn.pruned(dense, data, 80, 0, steps=2)
    weights = digits_cnn.arrays_of(student)
    assert np.mean(weights["layers.3.weight"] == 0) == pytest.approx(0.8, abs=0.01)
    assert (weights["layers.0.weight"] != 0).all()
    write_weights(tmp_path / "w.npz", weights)
    again = read_weights(tmp_path / "w.npz")
    assert all(np.array_equal(again[name], one) for name, one in weights.items())


def test_a_resnet_is_pruned_and_has_a_card() -> None:
    pytest.importorskip("sklearn")
    data, held_out = resnet18.read_images(0)
    assert len(held_out.labels) == resnet18.HELD_OUT
    some, others = (resnet18.Images(one.images[:40], one.labels[:40]) for one in (data, held_out))
    dense = resnet18.trained(some, 0, epochs=1, width=8)
    sparse = resnet18.pruned(dense, some, 0.8, 0, epochs=1)
    assert (sparse.layer4[1].conv2.weight == 0).float().mean() == pytest.approx(0.8, abs=0.01)
    assert (sparse.conv1.weight != 0).all()
    card = resnet18.card_of(dense, sparse, others)
    for name in ("dense", "sparse"):
        low, high = card[f"interval_{name}"]
        assert low < card[f"accuracy_{name}"] < high
    assert card["interval_difference"][0] < card["difference"] < card["interval_difference"][1]


def test_intervals_are_those_of_the_literature() -> None:
    # Newcombe 1998, table I: 81 of 263 by Wilson; Agresti and Min 2005: (2 wins, 7 losses of 100)
    assert resnet18.share_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=2e-4)
    low, high = resnet18.difference_interval(2, 7, 100)
    assert (low + high) / 2 == pytest.approx(-5 / 104)


@pytest.mark.parametrize("layers", [(0, 1), (0, 1, 2, 3, 4, 5)])
def test_an_encoder_is_pruned_and_comes_closer(layers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sentences.HIDDEN, 2, ((1, 2), (2, 3)))
    base = tiny_base(72)
    teacher: Any = Encoder(base, (0, 1, 2, 0, 1, 2)).eval()
    buckets = [
        sentences.Bucket(torch.from_numpy(np.random.default_rng(length).integers(0, 50, (40, length))))
        for length in (5, 9)
    ]
    dev = buckets[0].ids, torch.full((40,), 5)
    with torch.no_grad():
        dense = pooled(teacher(dev[0])[-1])
    data = sentences.Data(buckets, {}, dev, dense, {}, {}, {})
    sentences.remember(teacher, data, torch.device("cpu"))
    student = Encoder(base, [number % 3 for number in layers])
    told = sentences.train(student, data, sentences.Recipe(), zeros=0.7, steps=12, tokens=64, deadline=1e9, points=3)
    assert told["steps"] == 12
    assert told["curve"][-1]["cos"] > told["curve"][0]["cos"]
    assert sparsity(student) == pytest.approx(0.7, abs=0.02)
