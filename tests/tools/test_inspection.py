"""`redpebble compile`, and what commands show of the IR on its way."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import redpebble
from redpebble.driver.compiler import on_machine
from redpebble.models import zoo
from redpebble.options import Options
from redpebble.pipeline import build, passes_of
from redpebble.runtime.jit import host_target
from redpebble.runtime.network import Network
from redpebble.runtime.store.artefact import read_artefact
from redpebble.runtime.store.cache import default_folder
from redpebble.tools import opt
from tests.passes.pass_texts import parse
from tests.support.command_line import exit_code

SPEC = "ffnn(depth=2, width=24, density=0.2)"
HEADER = "// -----// IR Dump After {} //----- //"

Run = Callable[..., tuple[int, str, str]]
"""Runs the command line; returns the exit code, what was printed, and errors."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    def called(*words: object) -> tuple[int, str, str]:
        code = exit_code(monkeypatch, *words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return called


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    zoo.save(zoo.build(SPEC), path)
    return path


def headers(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line.startswith("// -----//")]


def test_compile_fills_the_cache_and_shows_the_layers(run: Run, model: Path, tmp_path: Path) -> None:
    code, printed, errors = run("compile", model, "--threads", 2, "--skip-passes", "pebble-reorder-neurons")
    assert (code, errors) == (0, "")
    assert "/layers.0/Gemm" in printed
    (kept,) = (tmp_path / "cache" / "redpebble").glob("*.pebble")
    before = kept.stat().st_mtime_ns
    redpebble.compile(model, threads=2, skip_passes=("pebble-reorder-neurons",))
    assert kept.stat().st_mtime_ns == before
    assert len([*kept.parent.glob("*.pebble")]) == 1


@pytest.mark.slow
def test_compile_writes_code_that_runs(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("compile", model, "-o", tmp_path / "code.pebble", "--target", "generic")[0] == 0
    code = read_artefact(tmp_path / "code.pebble")
    assert code.program.target.lanes == 4
    x = np.random.default_rng(0).random((3, 24), dtype=np.float32)
    (ours,) = Network(code.program, code.image, 1).run(None, {"x": x})
    (expected,) = redpebble.compile(model).run(None, {"x": x})
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compile", "optimize", "explain"])
def test_the_ir_after_each_pass_is_shown_on_standard_error(command: str, run: Run, model: Path, tmp_path: Path) -> None:
    words = {"compile": (), "optimize": (tmp_path / "out.onnx",), "explain": ("--seconds", 0)}[command]
    code, printed, errors = run(command, model, *words, "--print-after-all")
    options = Options("optimize") if command == "optimize" else Options()
    expected = [HEADER.format(one.name) for one in passes_of(options)]
    found = [line for line in headers(errors) if "measure" not in line and "flatten" not in line]
    assert code == 0
    assert found == expected
    assert "IR Dump" not in printed
    assert "dense_resource<__elided__> : tensor<24x24xf32>" in errors


def test_the_ir_after_chosen_passes_is_shown_also_of_what_is_in_the_cache(run: Run, model: Path) -> None:
    run("compile", model)
    names = ("pebble-sparsify", "pebble-form-tiles")
    _, printed, errors = run("compile", model, *(word for name in names for word in ("--print-after", name)))
    assert headers(errors) == [HEADER.format(name) for name in names]
    assert "/layers.0/Gemm" in printed


@pytest.mark.parametrize(
    "command, options, stage",
    [("compile", Options(), "tile"), ("explain", Options(), "simplify"), ("optimize", Options("optimize"), "extract")],
)
def test_the_module_after_a_stage_is_printed_whole(
    command: str, options: Options, stage: str, run: Run, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.onnx"
    code, printed, errors = run(command, model, *([out] if command == "optimize" else []), "--stop-after", stage)
    assert (code, errors) == (0, "")
    if command == "compile":
        options = on_machine(options, host_target(), default_folder(), tune=False)
    assert parse(printed).is_structurally_equivalent(build(model, options, until=stage, foreign="keep"))
    assert not out.exists()


def test_the_module_after_a_stage_goes_into_a_file(run: Run, model: Path, tmp_path: Path) -> None:
    code, printed, _ = run("compile", model, "--stop-after", "choose", "-o", tmp_path / "chosen.mlir")
    assert (code, printed) == (0, "")
    assert "kernel <" in (tmp_path / "chosen.mlir").read_text()
    assert not [*tmp_path.glob("cache/redpebble/*.pebble")]


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ("compile", "--print-after", "x"),
            "pass: expected one of canonicalize, pebble-",
        ),
        (("compile", "--skip-passes", "pebble-form-tiles"), "pass: expected one of "),
        (
            ("compile", "--stop-after", "x"),
            "stage: expected one of simplify, expand, arrange, choose, tile, schedule, got 'x'",
        ),
        (
            ("optimize", "--stop-after", "tile"),
            "stage: expected one of simplify, choose, extract, split, got 'tile'",
        ),
        (("optimize", "--print-after", "pebble-form-tiles"), "pass: expected one of "),
        (("explain", "--stop-after", "x"), "stage: expected one of simplify, expand, arrange, choose, "),
        (("explain", "--print-after", "x"), "pass: expected one of "),
        (
            ("compile", "--stop-after", "simplify", "--print-after", "pebble-form-tiles"),
            "pass: expected one of ",
        ),
    ],
)
def test_unknown_passes_and_stages_are_one_line(
    words: tuple[str, ...], message: str, run: Run, model: Path, tmp_path: Path
) -> None:
    command, *options = words
    files = [model, tmp_path / "out.onnx"] if command == "optimize" else [model]
    code, printed, errors = run(command, *files, *options)
    assert (code, printed) == (2, "")
    assert errors.startswith(f"error: {message}")
    assert len(errors.splitlines()) == 1


def test_redpebble_opt_runs_stages_and_shows_the_ir(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opt.main([str(model), "--stop-after", "simplify", "-p", "pebble-choose-kernels", "--print-after-all"])
    captured = capsys.readouterr()
    names = [*(one.name for one in passes_of(Options(), until="simplify")), "pebble-choose-kernels"]
    assert headers(captured.err) == [HEADER.format(name) for name in names]
    assert "kernel <" in captured.out
    opt.main([str(model), "-p", "canonicalize,pebble-fuse-layers", "--print-after", "pebble-fuse-layers"])
    assert headers(capsys.readouterr().err) == [HEADER.format("pebble-fuse-layers")]


def test_a_stage_is_shown_without_what_is_computed_before_native_code(run: Run, tmp_path: Path) -> None:
    graph = "g (int64[n] ids) => (float[n,4] y) { rows = Gather(table, ids) y = MatMul(rows, weight) }"
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {graph}')
    for name, shape in (("table", (5, 8)), ("weight", (8, 4))):
        proto.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    (tmp_path / "lookup.onnx").write_bytes(proto.SerializeToString())
    for command in ("compile", "explain"):
        code, printed, errors = run(command, tmp_path / "lookup.onnx", "--stop-after", "tile", "--elide", 8)
        assert (code, errors) == (0, "")
        assert "%rows: tensor<?x8xf32>" in printed
