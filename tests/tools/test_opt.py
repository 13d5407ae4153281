"""`redpebble-opt`, and what stock `xdsl-opt` knows of us."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import set_external_data

from redpebble.tools.opt import main

LAYER = """
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %y = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
"""
MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
graph (float[batch, 2] x) => (float[batch, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { h = MatMul(x, w) y = Relu(h) }
"""


def model(*, external: Path | None = None) -> bytes:
    proto = onnx.parser.parse_model(MODEL)
    if external is not None:
        tensor = onnx.numpy_helper.from_array(np.arange(1, 5, dtype=np.float32).reshape(2, 2), "w")
        external.write_bytes(tensor.raw_data)
        set_external_data(tensor, external.name)
        tensor.ClearField("raw_data")
        proto.graph.initializer[0].CopyFrom(tensor)
    return proto.SerializeToString()


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_stock_xdsl_opt_knows_the_dialect() -> None:
    command = [sys.executable, "-m", "xdsl.tools.xdsl_opt", "-p", "canonicalize"]
    stock = subprocess.run(command, input=LAYER, capture_output=True, text=True, check=True)
    assert "%y = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>" in stock.stdout


def test_text_is_read_as_xdsl_opt_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "layer.mlir"
    file.write_text(LAYER)
    main([str(file), "-p", "canonicalize"])
    assert "pebble.linear %x, %w" in capsys.readouterr().out


def test_a_model_becomes_a_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "layer.onnx"
    file.write_bytes(model())
    main([str(file)])
    text = capsys.readouterr().out
    assert '(%0: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]})' in text
    assert "pebble.linear" in text


def test_external_data_is_found_beside_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "layer.onnx").write_bytes(model(external=folder / "layer.bin"))
    monkeypatch.chdir(elsewhere)
    main([str(folder / "layer.onnx")])
    assert "dense<[[1.000000e+00, 2.000000e+00], [3.000000e+00, 4.000000e+00]]>" in capsys.readouterr().out


def test_a_model_is_read_from_standard_input() -> None:
    command = [sys.executable, "-c", "from redpebble.tools.opt import main; main()", "-f", "onnx"]
    piped = subprocess.run(command, input=model(), capture_output=True, check=True)
    assert b"pebble.linear" in piped.stdout


def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "layer.onnx"
    file.write_bytes(model()[:-7])
    assert refused([str(file)], capsys).startswith("error: ")


def test_text_that_does_not_parse_is_refused_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "layer.mlir"
    file.write_text(LAYER.replace("%x, %w", "%x %w"))
    assert refused([str(file)], capsys) == f"error: {file}:4:25: Expected ','"


def test_a_module_that_does_not_verify_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "layer.mlir"
    file.write_text(LAYER.replace("tensor<2x2xf32>", "tensor<3x2xf32>"))
    assert refused([str(file)], capsys) == "error: input ?x2 does not fit weight 3x2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.mlir"], "error: [Errno 2] No such file or directory: 'none.mlir'"),
        (["-p", "no-pass", "x.mlir"], "error: Unrecognized passes: ['no-pass']"),
        (["-p", "canonicalize", "--print-after", "x", "x.mlir"], "error: unknown pass 'x', accepted are canonicalize"),
        (
            ["--stop-after", "x", "x.mlir"],
            "error: unknown stage 'x', accepted are simplify, arrange, choose, flatten, ",
        ),
        (["-p", "canonicalize{x=1}", "x.mlir"], 'error: Provided arguments ["x"] not found in expected arguments []'),
        (["-p", "canonicalize{x", "x.mlir"], "error: Error parsing pass pipeline specification: "),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(arguments, capsys).startswith(message)
