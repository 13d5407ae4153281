"""`redpebble-opt`, and what stock `xdsl-opt` knows of us."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import set_external_data
from xdsl.dialects.builtin import ModuleOp
from xdsl.universe import Universe

from redpebble.driver.named_pipelines import OptimizePipeline, stage_pipeline
from redpebble.models import zoo
from redpebble.options import Options
from redpebble.passes.runner import context
from redpebble.pipeline import PIPELINE, passes_of
from redpebble.tools.opt import main
from redpebble.universe import PIPELINES, REDPEBBLE_UNIVERSE

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
    assert '(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]})' in text
    assert "%h = pebble.linear %x, %w " in text
    assert "%y = pebble.activate <relu> %h " in text


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


@pytest.mark.slow
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
    assert refused([str(file)], capsys) == "error: expected x ?x3, got ?x2"


@pytest.mark.parametrize(("is_terminal", "options"), [(True, ()), (False, ("--elide", "16"))])
def test_a_terminal_gets_no_large_constants(
    is_terminal: bool,
    options: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "layer.mlir"
    values = ", ".join(f"{value}.5" for value in range(20))
    file.write_text(f"%w = pebble.constant dense<[{values}]> : tensor<20xf32>\n")
    main([str(file)])
    assert "1.950000e+01" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    main([str(file), *options])
    assert "dense_resource<" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.mlir"], "error: 'none.mlir': no such file or directory"),
        (["-p", "no-pass", "x.mlir"], "error: unknown pass 'no-pass'; redpebble-opt --list-passes shows all"),
        (
            ["-p", "pebble-simplfy", "x.mlir"],
            "error: unknown pass 'pebble-simplfy', near it are pebble-simplify, ",
        ),
        (["-p", "pebble-compile{threads=0}", "x.mlir"], "error: threads: expected 1 or more, got 0"),
        (
            ["-p", "canonicalize", "--print-after", "x", "x.mlir"],
            "error: pass: expected one of ",
        ),
        (
            ["--stop-after", "x", "x.mlir"],
            "error: stage: expected one of simplify, expand, arrange, choose, flatten, ",
        ),
        (
            ["-p", "canonicalize{x=1}", "x.mlir"],
            'error: canonicalize: Provided arguments ["x"] not found in expected arguments []',
        ),
        (["-p", "canonicalize{x", "x.mlir"], "error: Error parsing pass pipeline specification: "),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(arguments, capsys).startswith(message)


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    path = tmp_path / "layer.onnx"
    path.write_bytes(model())
    return path


def test_a_pipeline_is_the_passes_of_its_stages(layer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(layer), "-p", "pebble-compile", "--print-after", "pebble-form-tiles"])
    by_name = capsys.readouterr()
    main([str(layer), "-p", ",".join(one.name for one in passes_of(Options()))])
    assert capsys.readouterr().out == by_name.out
    assert "IR Dump After pebble-form-tiles" in by_name.err
    main([str(layer), "-p", "pebble-simplify,pebble-choose,pebble-tile{}", "-t", "pebble-llvm"])
    assert "define " in capsys.readouterr().out


def test_every_stage_and_the_ways_of_commands_are_pipelines() -> None:
    assert {*PIPELINES} == {"compile", "optimize", *(stage.name for stage in PIPELINE)}
    for stage in PIPELINE:
        pipeline = stage_pipeline(stage.name)()
        goal = stage.goals[0]
        whole = passes_of(Options(goal), until=stage.name)
        assert [one.name for one in whole][-len(pipeline.passes()) :] == [one.name for one in pipeline.passes()]
    sparse, plain = OptimizePipeline().passes(), OptimizePipeline(sparse_networks=False).passes()
    assert len(sparse) == len(plain) + 1


def test_stock_xdsl_opt_knows_the_pipelines() -> None:
    module = ModuleOp([])
    for name in PIPELINES:
        Universe.get_multiverse().all_passes[f"pebble-{name}"]()().apply(context(), module)


def test_passes_are_listed_with_what_they_do_and_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--list-passes"])
    text = capsys.readouterr().out
    words = " ".join(text.split())
    assert "pebble-sparsify Choose how the weight of each linear layer and convolution is stored: dense, or" in words
    assert "threshold (default `0.62`): Density below which a weight becomes sparse" in words
    assert "pebble-tile The passes of one stage: pebble-scale-channels, pebble-fold-batch-norm, canonicalize" in words
    assert all(f"\n  {name}\n" in text for name in REDPEBBLE_UNIVERSE.all_passes)
    assert max(map(len, text.splitlines())) <= 100


def test_constants_are_left_out_on_request_and_the_text_says_so(
    layer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(layer), "--elide", "3"])
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "// constants of more than 3 elements are left out: this cannot be read back"
    assert any("dense_resource<__elided__> : tensor<2x2xf32>" in line for line in rest)
    main([str(layer), "--elide", "4"])
    assert "__elided__" not in capsys.readouterr().out
    message = "error: expected 0 or more elements of a constant to print, got -1"
    assert refused([str(layer), "--elide", "-1"], capsys) == message
    main([str(layer), "-p", "canonicalize", "--print-after-all", "--elide", "3"])
    assert "__elided__" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ("canonicalize", "pebble.linear has no code outside a pebble.tile: run pebble-tile before, or pebble-compile"),
        ("pebble-tile", "pebble.linear has no kernel: run pebble-choose-kernels before, or pebble-compile"),
    ],
)
def test_what_is_lowered_too_early_names_the_pass(
    passes: str, message: str, layer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused([str(layer), "-p", passes, "-t", "pebble-llvm"], capsys) == f"error: {message}"


@pytest.mark.slow
@pytest.mark.parametrize("passes", ["", "pebble-simplify", "pebble-compile", "pebble-optimize", "pebble-flatten"])
@pytest.mark.parametrize("words", [(), ("--elide", "3")])
def test_mlir_reads_the_generic_form(
    passes: str, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("iree.compiler", reason="iree-opt is missing: pip install 'redpebble[mlir]'")
    path, text = tmp_path / "model.onnx", tmp_path / "generic.mlir"
    zoo.save(zoo.build("resmlp(depth=1, width=16)"), path)
    main([str(path), "-p", passes, "--print-op-generic", "-o", str(text), *words])
    iree_opt = (sys.executable, "-m", "iree.compiler.tools.scripts.iree_opt", "--allow-unregistered-dialect")
    read = subprocess.run([*iree_opt, "--mlir-print-op-generic", str(text)], capture_output=True, text=True, check=True)
    again = subprocess.run([*iree_opt, "-"], input=read.stdout, capture_output=True, text=True, check=True)
    assert again.stdout.count("pebble.") == read.stdout.count("pebble.") > 0
    if not words:
        text.write_text(read.stdout)
        main([str(text)])
        assert "pebble." in capsys.readouterr().out
