"""`redpebble distil`: ONNX in and out, better by onnxruntime, zeros and names kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

torch: Any = pytest.importorskip("torch")

from redpebble.frontend.reading.model_source import read_model  # noqa: E402
from redpebble.models.exports.stored import random_feeds, stored_export  # noqa: E402
from redpebble.pytorch.distil_models import Distilled, Length, distil_model  # noqa: E402
from redpebble.pytorch.imported.data import Samples  # noqa: E402
from redpebble.pytorch.imported.module import OnnxModule  # noqa: E402
from tests.support.command_line import exit_code  # noqa: E402

Feeds = dict[str, NDArray[Any]]

torch.set_num_threads(1)


def feeds_of(name: str, samples: int = 48) -> Feeds:
    feeds = random_feeds(stored_export(name), {"batch": samples, "sequence": 9, "past": 0, "total": 9})
    return {one: value for one, value in feeds.items() if value.ndim}


def trained(name: str, options: Mapping[str, Any]) -> Distilled:
    settings: dict[str, Any] = {"length": Length(steps=24), "batch": 8, "rate": 2e-3, "progress": False}
    return distil_model(stored_export(name, 0.6), stored_export(name, 0.0), feeds_of(name), **{**settings, **options})


@pytest.mark.parametrize(
    ("name", "metric"), [("bert.classic", "quality"), ("resnet.dynamo", "quality"), ("llama.classic", "perplexity")]
)
def test_a_sparse_model_comes_closer_and_keeps_its_zeros(name: str, metric: str) -> None:
    result = trained(name, {"metric": metric})
    report, before = result.report, stored_export(name, 0.6)
    first = next(iter(report.after))
    assert report.after[first] >= report.before[first]
    assert report.history.points[-1].loss < report.history.points[0].loss
    assert report.is_held_out
    assert report.samples == 6
    assert report.difference < 1e-4
    assert report.connections < 0.7 * report.parameters
    # quality a million weights, by what the file itself has of them
    module = OnnxModule(result.model)
    left = sum(int(one.weight.count_nonzero()) for one in module.layers.values())
    assert report.connections == left
    assert report.parameter_efficiency == pytest.approx(report.after[first] * 1e6 / left)
    assert report.dense_efficiency == pytest.approx(report.teacher[first] * 1e6 / report.parameters)
    stored = {one.name: numpy_helper.to_array(one) for one in before.graph.initializer}
    assert {*stored} == {*result.model.graph.initializers}
    for initializer, value in result.model.graph.initializers.items():
        assert value.const_value is not None
        new, old = value.const_value.numpy(), stored[initializer]
        assert (new.shape, new.dtype) == (old.shape, old.dtype)
        if old.ndim > 1 and old.dtype == np.float32 and np.mean(old == 0) > 0.5:
            assert not new[old == 0].any()
            assert (new != old).any()


def test_a_training_that_gains_nothing_leaves_the_model_as_it_is() -> None:
    model = stored_export("bert.classic", 0.0)
    settings: dict[str, Any] = {"length": Length(steps=3), "batch": 8, "rate": 10.0, "progress": False}
    result = distil_model(model, model, feeds_of("bert.classic"), **settings)
    assert result.report.after == result.report.before
    assert "nothing was gained" in str(result.report)
    for one in model.graph.initializer:
        held = result.model.graph.initializers[one.name].const_value
        assert held is not None
        np.testing.assert_array_equal(held.numpy(), numpy_helper.to_array(one))


def test_a_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    first, again = (trained("bert.classic", {"checkpoint": path}) for _ in range(2))
    assert first.report.after == again.report.after
    assert first.report.history.points == again.report.history.points


def test_labels_alone_teach_a_network(tmp_path: Path) -> None:
    feeds = feeds_of("resnet.dynamo")
    width = 0
    for value in stored_export("resnet.dynamo").graph.output[:1]:
        width = value.type.tensor_type.shape.dim[1].dim_value
    wanted = np.random.default_rng(0).standard_normal((48, width)).astype(np.float32)
    sparse = stored_export("resnet.dynamo", 0.6)
    shape = [dim.dim_value for dim in sparse.graph.output[0].type.tensor_type.shape.dim]
    data = feeds | {"y": wanted.reshape(48, *shape[1:])}
    settings: dict[str, Any] = {"length": Length(steps=6), "batch": 8, "progress": False}
    result = distil_model(sparse, None, data, labels="y", **settings)
    assert result.report.history.steps == 6


def test_texts_are_batched_by_length_and_what_is_told_is_filled_in() -> None:
    ids = np.arange(40).reshape(8, 5)
    mask = (np.arange(5) < np.array([5, 1, 2, 2, 1, 5, 1, 2])[:, None]).astype(np.int64)
    model = read_model(stored_export("llama.genai"))
    samples = Samples.of(model, {"input_ids": ids, "attention_mask": mask}, None, 3)
    assert samples.arrays["past_key_values.0.key"].shape[2] == 0
    widths = [samples.feeds(which)["input_ids"].shape[1] for which in samples.orders(np.random.default_rng(0))]
    assert sorted(widths)[0] == 1
    fitted, judged = samples.split(0)
    assert fitted is judged


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "bleu"}, "metric: expected one of quality, accuracy, perplexity, cer or recall@k, got 'bleu'"),
        ({"labels": "z"}, "the data has no array 'z' of labels"),
        ({"losses": ["far"]}, "loss: expected one of embedding"),
        ({"length": Length(steps=-1)}, "steps: expected more than 0, got -1"),
    ],
)
def test_bad_options_are_said_in_a_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
        trained("bert.classic", options)


def test_the_command_writes_a_better_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for file, sparsity in (("sparse.onnx", 0.6), ("dense.onnx", 0.0)):
        (tmp_path / file).write_bytes(stored_export("bert.classic", sparsity).SerializeToString())
    arrays: Any = feeds_of("bert.classic")
    np.savez(tmp_path / "data.npz", **arrays)
    monkeypatch.chdir(tmp_path)
    line = "distil sparse.onnx good.onnx --teacher dense.onnx --data data.npz --loss embedding --loss hidden:0.5"
    assert exit_code(monkeypatch, *line.split(), "--steps", "20", "--batch", "8", "--metric", "recall@1") == 0
    assert "held-out samples" in " ".join(capfd.readouterr().out.split())
    assert onnx.ModelProto.FromString((tmp_path / "good.onnx").read_bytes()).graph.node[0].op_type
    assert exit_code(monkeypatch, *line.replace("hidden:0.5", "hidden:x").split()) == 2
    assert "loss: expected one such as hidden:0.5, got 'hidden:x'" in capfd.readouterr().err


def test_a_past_whose_head_has_only_a_name_for_its_size_gets_the_size() -> None:
    """The builder of onnxruntime-genai names it `kv_cache_dim`."""
    proto = stored_export("llama.genai", 0.0)
    pasts = [one for one in proto.graph.input if one.name.startswith("past")]
    sizes = {one.name: one.type.tensor_type.shape.dim[3].dim_value for one in pasts}
    for one in pasts:
        one.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    samples = Samples.of(read_model(proto), {"input_ids": np.ones((8, 5), np.int64)}, None, 4)
    for name, size in sizes.items():
        assert size > 0
        assert samples.arrays[name].shape[2:] == (0, size)
