"""Sparse layers quantized by samples: what becomes integers, what it costs, what is refused."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser
from typer.testing import CliRunner

import redpebble
from redpebble.driver.compiler import Precision
from redpebble.tools.main import app
from redpebble.tuning.sample_codes import change_of
from tests.support.quantized_models import pruned_network

Floats = NDArray[np.float32]


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
    with pytest.raises(ValueError, match="expected samples of --data for --precision int8, got none"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    with pytest.raises(ValueError, match=r"^expected arrays for x in the data, got z$"):
        CliRunner().invoke(app, [*words, "--data", str(samples)], catch_exceptions=False)
    with pytest.raises(
        ValueError, match=r"^expected --precision int8 or bf16 with --data, got float32, which needs no samples$"
    ):
        CliRunner().invoke(app, [*words[:3], "--data", str(samples)], catch_exceptions=False)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("precision", ["int8", "bf16"])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((3, 9), np.float32), r"input 'x' of the data: expected shape \(any, 8\), got \(3, 9\)"),
        (np.zeros((0, 8), np.float32), "expected some hundred samples in the data, got none"),
        (np.full((3, 8), np.nan, np.float32), "input 'x' of the data: expected finite numbers, got NaN"),
        (np.full((3, 8), np.inf, np.float32), "input 'x' of the data: expected finite numbers, got infinity"),
    ],
)
def test_samples_that_show_nothing_are_refused(precision: Precision, x: Floats, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        redpebble.optimize(pruned_network([8, 8], 0.1), precision=precision, samples={"x": x})


def with_loud_input() -> tuple[onnx.ModelProto, Floats]:
    """A network whose first input is large and counts for little: bytes of its range leave nothing of the others."""
    model, rng = pruned_network([40, 64, 20], 0.15), np.random.default_rng(0)
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[0] = 1e-6
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w0"))
    x = rng.standard_normal((96, 40), dtype=np.float32)
    x[:, 0] *= 1e3
    return model, x


def test_a_layer_that_would_change_too_much_stays_as_it_is_and_is_named(tmp_path: Path) -> None:
    model, x = with_loud_input()
    some, left = redpebble.optimize(model, samples={"x": x}).quantized.split("; ")
    assert some.startswith("1 of 2 sparse layers compute with integers, results change by ")
    assert re.fullmatch(r"fc0 \(40 -> \d+\) would change by [1-9]\d+%", left)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    np.savez(tmp_path / "x.npz", x=x)
    words = [
        "optimize",
        str(path),
        str(tmp_path / "out.onnx"),
        "--precision",
        "int8",
        "--data",
        str(tmp_path / "x.npz"),
    ]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert f"{some}\n  {left}\n" in done.output


def test_samples_of_a_model_with_batches_of_one_size_are_cut() -> None:
    free, x = with_loud_input()
    fixed = onnx.ModelProto.FromString(free.SerializeToString())
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 8
    texts = [redpebble.optimize(model, samples={"x": x}).quantized for model in (free, fixed)]
    assert texts[0] == texts[1]


EMBEDDED = """
<ir_version: 9, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
embedded (int64[n] ids) => (float[n, 64] y) {
  e = Gather(table, ids)
  c = CumSum(e, axis)
  h = MatMul(c, w)
  y = Tanh(h)
}
"""


def with_embedding() -> onnx.ModelProto:
    model, rng = parser.parse_model(EMBEDDED), np.random.default_rng(2)
    arrays = {
        "table": rng.standard_normal((10, 128), dtype=np.float32),
        "w": (rng.standard_normal((128, 64)) * (rng.random((128, 64)) < 0.1)).astype(np.float32) / 8,
        "axis": np.array(1, np.int64),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model


def test_layers_behind_nodes_that_stay_become_integers() -> None:
    model, ids = with_embedding(), np.arange(10)
    result = redpebble.optimize(model, samples={"ids": ids})
    assert result.quantized.startswith("1 of 1 sparse layers compute with integers")
    assert [layer.format for layer in result.report] == ["int8"]
    floats = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = floats.run(None, {"ids": ids})[0]
    assert np.abs(redpebble.session(result.proto).run(None, {"ids": ids})[0] - expected).max() < 0.1


def test_a_node_that_fails_for_samples_is_named_in_a_line_and_nothing_else_is_written(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(Exception, match=r"pebble-quantize-layers: operator ai\.onnx::Gather was not run: ") as raised:
        redpebble.optimize(with_embedding(), samples={"ids": np.array([99])})
    assert "\n" not in str(raised.value)
    assert "pebble-recognize-layers" not in str(raised.value)  # one pass of those before is named
    assert capfd.readouterr().err == ""


def test_samples_beyond_all_numbers_show_no_small_change() -> None:
    big, none = np.full((2, 3), 1e30, np.float32), np.zeros((2, 3), np.float32)
    assert change_of([none], [none]) == 0
    assert change_of([big], [none]) == change_of([none], [big]) == change_of([none], [big * np.inf]) == np.inf
