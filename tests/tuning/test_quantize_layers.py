"""Sparse layers quantized by samples: what becomes integers, what it costs, what is refused."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

import redpebble
from redpebble.tools.main import app
from tests.support.quantized_models import pruned_network


def test_layers_become_integers_and_say_what_results_change_by(tmp_path: Path) -> None:
    model = pruned_network([40, 64, 20], 0.15)
    x = np.random.default_rng(0).standard_normal((100, 40), dtype=np.float32)
    result = redpebble.optimize(model, samples={"x": x})
    text, share = result.quantized.rsplit(" ", 1)
    assert text == "2 of 2 sparse layers compute with integers, results change by"
    assert [layer.format for layer in result.report] == ["int8", "int8"]
    path = tmp_path / "quantized.onnx"
    result.save(path)
    floats = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = floats.run(None, {"x": x})[0]
    change = redpebble.session(path).run(None, {"x": x})[0] - expected
    measured = np.sqrt(np.mean(np.square(change)) / np.mean(np.square(expected)))
    assert 0 < measured < 0.05
    assert measured == pytest.approx(float(share.rstrip("%")) / 100, rel=0.1)


def test_dense_layers_stay_as_they_are() -> None:
    x = np.random.default_rng(0).standard_normal((10, 40), dtype=np.float32)
    result = redpebble.optimize(pruned_network([40, 64, 20], 1.0), samples={"x": x})
    assert result.quantized == "0 of 0 sparse layers compute with integers, results change by 0.00%"


def test_samples_go_with_int8(tmp_path: Path) -> None:
    path, samples = tmp_path / "model.onnx", tmp_path / "samples.npz"
    path.write_bytes(pruned_network([8, 8], 0.1).SerializeToString())
    np.savez(samples, z=np.zeros((3, 8), dtype=np.float32))
    words = ["optimize", str(path), str(tmp_path / "out.onnx"), "--precision", "int8"]
    with pytest.raises(ValueError, match="int8 needs samples: --precision int8 --data"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    with pytest.raises(Exception, match="values for z, expected x"):
        CliRunner().invoke(app, [*words, "--data", str(samples)], catch_exceptions=False)
    assert not (tmp_path / "out.onnx").exists()
