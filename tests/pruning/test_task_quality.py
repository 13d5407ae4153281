"""Quality of a task beside a pruned model, by onnxruntime."""

from pathlib import Path

import numpy as np
import pytest

from redpebble.models import digits_cnn, zoo
from redpebble.models.digits import digits_test_set
from redpebble.pruning.metrics import metric_of
from redpebble.pruning.task_quality import task_quality
from tests.support.command_line import exit_code


def test_accuracy_of_a_model_beside_a_worse_one_is_of_the_labels() -> None:
    images, labels = digits_test_set()
    feeds = {"x": images.reshape(-1, 1, 8, 8)}
    dense = zoo.build("digits_cnn")
    worse = digits_cnn.read_weights(digits_cnn.weights_file())
    worse["classes.bias"] = worse["classes.bias"] + 100 * np.eye(10, dtype=np.float32)[3]
    found = task_quality(dense, digits_cnn.cnn_model(worse), feeds, labels, metric_of("accuracy"))
    assert found.dense["accuracy"] == pytest.approx(digits_cnn.cnn_record()["accuracy_pruned"], abs=0.003)
    assert found.sparse["accuracy"] == pytest.approx(float((labels == 3).mean()))
    assert f"on {len(labels)} samples (difference -0.93 to -0.86 with 95 %)" in str(found)
    with pytest.raises(ValueError, match="expected one or more samples along the first axes of all arrays"):
        task_quality(dense, dense, feeds, labels[:5], metric_of("accuracy"))


def test_the_command_prints_a_metric_on_other_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    zoo.save(zoo.build("ffnn(depth=1,width=72,density=1.0)"), "m.onnx")
    np.savez("d.npz", x=rng.random((80, 72), dtype=np.float32))
    np.savez("v.npz", x=rng.random((40, 72), dtype=np.float32))
    line = "prune m.onnx o.onnx --data d.npz --sparsity 0.9 --rows 8 --metric recall@1"
    assert exit_code(monkeypatch, *line.split(), "--validate", "v.npz") == 0
    text = capfd.readouterr().out
    assert "recall@1 1 -> " in text
    assert "on 40 samples (difference " in text
    assert exit_code(monkeypatch, *line.replace("recall@1", "bleu").split()) == 2
    assert "metric: expected one of" in capfd.readouterr().err
