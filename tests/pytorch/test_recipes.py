"""Scripts that train models of the zoo: they run on small data, and what they write is sparse."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

torch: Any = pytest.importorskip("torch")

from redpebble.models.digits import DigitImages  # noqa: E402
from redpebble.models.digits_cnn import read_weights, write_weights  # noqa: E402
from redpebble.models.graph_builder import GraphBuilder, Output  # noqa: E402
from redpebble.models.recognizer import constants  # noqa: E402
from redpebble.models.sentences.encoder import Encoder, pooled  # noqa: E402
from redpebble.models.sentences.stored import sparsity  # noqa: E402
from redpebble.pytorch.recipes import digits_cnn, heads, recognizer, resnet18, sentences  # noqa: E402
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


def test_heads_and_zeros_alone_get_the_same_time_and_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sentences.HIDDEN, 3, ((1, 2), (2, 3)))
    monkeypatch.setattr(heads, "REST_US", 400.0)
    base, rng = tiny_base(72), np.random.default_rng(0)
    teacher: Any = Encoder(base, (0, 1, 2, 0, 1, 2)).eval()
    buckets = [sentences.Bucket(torch.from_numpy(rng.integers(0, 50, (40, length)))) for length in (5, 9)]
    some = buckets[0].ids, torch.full((40,), 5)
    tests = {"sentences": some, "man_query": some, "man_answer": some}
    dense, embeddings = sentences.measured(teacher, tests, None)
    data = sentences.Data(buckets, {}, some, embeddings["sentences"], tests, embeddings, dense)
    sentences.remember(teacher, data, torch.device("cpu"))
    plan = heads.Plan(speedup=1.2, drop=3, steps=6, tokens=64, rates=(1e-9, 3e-3), trial_steps=4)
    kept: list[tuple[str, bool]] = []
    start = Encoder(base, (0, 1, 2))

    def keep(name: str, student: object, _: dict[str, Any]) -> None:
        kept.append((name, student is not start))

    results = heads.compared(start, data, plan, tmp_path, keep)
    differences, trials = results.pop("heads_less_zeros"), results.pop("trials")
    assert trials[3e-3]["cos"] > trials[1e-9]["cos"]
    assert kept == [("zeros", True), ("heads", True)]
    assert [len(gone) for one in results.values() for gone in one["heads"].values()] == [0, 0, 0, 3, 3, 3]
    assert results["heads"]["us"] == pytest.approx(results["zeros"]["us"], rel=0.05)
    assert results["zeros"]["zeros"] > results["heads"]["zeros"] > 0
    for one in results.values():
        assert (one["steps"], one["rate"]) == (6, 3e-3)
        assert one["trained"]["cos"] > one["pruned"]["cos"]
    for name, found in differences.items():
        difference = results["heads"]["trained"][name] - results["zeros"]["trained"][name]
        assert found["difference"] == pytest.approx(difference, abs=1e-4)
        assert found["low"] < difference < found["high"]


def small_recognizer(factor: np.ndarray) -> onnx_ir.Model:
    builder, rng = GraphBuilder(), np.random.default_rng(0)
    kernel = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    first, second = (
        builder.op("Constant", [], name, {"value": onnx_ir.tensor(array)})
        for name, array in (("first", kernel), ("second", factor))
    )
    seen = builder.op("Relu", [builder.op("Conv", [builder.input("x", ("n", 3, "h", "w")), first], "seen")], "relu")
    scores = builder.op("Conv", [seen, second], recognizer.TRAINED_FROM)
    places = builder.op("Transpose", [scores], "places", {"perm": [0, 2, 3, 1]})
    found = builder.op("Softmax", [places], "found", {"axis": -1})
    return builder.model("small", {"y": Output(found, ("n", "p", "q", 8))})


def test_a_recogniser_is_trained_behind_its_first_stages_and_keeps_its_zeros() -> None:
    rng = np.random.default_rng(1)
    factor = rng.standard_normal((8, 4, 1, 1)).astype(np.float32)
    # one in two, so that what is left can make up for it in part
    kept = (rng.random(factor.shape) < 0.5).astype(np.float32)
    dense, sparse = small_recognizer(factor), small_recognizer(factor * kept)
    images = [rng.standard_normal((count, 3, 5, width)).astype(np.float32) for count, width in ((16, 9), (1, 6))]
    wanted = [torch.from_numpy(one) for one in recognizer.answers(onnx_ir.to_proto(dense), images)]
    model, history = recognizer.trained(sparse, images, wanted, {"rate": 1e-2, "steps": 60, "progress": False})
    assert history.steps == 60

    def lost(one: onnx_ir.Model) -> float:
        found = recognizer.answers(onnx_ir.to_proto(one), images[:1])[0]
        return float((wanted[0].numpy() * (np.log(wanted[0].numpy()) - np.log(found))).sum(-1).mean())

    assert lost(model) < 0.8 * lost(sparse)
    before, after = constants(sparse), constants(model)
    assert np.array_equal(after["first_output_0"], before["first_output_0"])
    assert (after["second_output_0"][kept == 0] == 0).all()
    middle = constants(recognizer.mean_of([sparse, model]))["second_output_0"]
    wanted_middle = (before["second_output_0"] + after["second_output_0"]) / 2
    np.testing.assert_allclose(middle, wanted_middle, rtol=1e-6)


def test_a_recognisers_card_counts_characters_with_an_interval() -> None:
    before, after = recognizer.Read([0, 2, 1, 0], [10, 10, 10, 10]), recognizer.Read([0, 4, 1, 1], [10, 10, 10, 10])
    card = recognizer.card_of(before, before, after)
    assert card["characters_right"] == {"dense": 0.925, "pruned": 0.925, "trained": 0.85}
    assert card["lines_right"] == {"dense": 0.5, "trained": 0.25}
    assert card["difference"] == pytest.approx(-0.075)
    low, high = card["interval_difference"]
    # equal lengths: the mean of differences, with their standard error
    assert high - low == pytest.approx(2 * 1.96 * np.std([0, -0.2, 0, -0.1]) / 2)
