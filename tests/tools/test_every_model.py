"""`check`, `bench` and `tune` take every model that onnxruntime runs, with inputs that suit it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from redpebble.tools.benching.benchmark import bench_table, disturbed_line
from redpebble.tools.benching.model_bench import speed_ratio
from redpebble.tools.benching.results import BenchRow
from redpebble.tools.explain.neuron_graphs import flat_model
from redpebble.verification.measuring import Timing
from tests.support.command_line import exit_code

Run = Callable[..., tuple[int, str, str]]

PARTLY_COVERED = """
<ir_version: 8, opset_import: ["" : 17]>
partly (float[n, past, 64] x) => (float[n, past, 48] y)
{
    m = MatMul (x, w)
    h = Relu (m)
    sums = CumSum (h, axis)
    y = MatMul (sums, v)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto, rng = onnx.parser.parse_model(PARTLY_COVERED), np.random.default_rng(0)
    for name, shape in (("w", (64, 128)), ("v", (128, 48))):
        weight = rng.standard_normal(shape) * (rng.random(shape) < 0.05)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight.astype(np.float32), name))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "axis"))
    path = tmp_path / "partly.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def called(*words: object) -> tuple[int, str, str]:
        code = exit_code(monkeypatch, *words)
        captured = capsys.readouterr()
        return code, " ".join(captured.out.split()), captured.err

    return called


def test_connections_behind_an_embedding_are_counted() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    words (int64[n, s] ids) => (float[n, s, 8] y) {
        e = Gather (words, ids) last = Unsqueeze (ids, axes) f = Cast <to = 1> (last)
        g = Mul (e, f) h = MatMul (g, w) y = Relu (h)
    }
    """
    proto, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    for name, shape in (("words", (20, 16)), ("w", (16, 8))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.random(shape, dtype=np.float32), name))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "axes"))
    (network,) = flat_model(proto).networks
    assert len(network.sources) == 16 * 8


@pytest.mark.slow
def test_a_model_that_is_covered_in_part_is_checked_as_a_session_runs_it(run: Run, model: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    code, shown, _ = run("check", model, "--batch", 3, "--runs", 1, "--dim", "past=5", "--report", report)
    assert code == 0
    assert "redpebble.session is checked: node " in shown
    assert "node 'sums': operator CumSum (ai.onnx 17): no native code" in shown
    assert [one["name"] for one in json.loads(report.read_text())["outputs"]] == ["y, session"]


@pytest.mark.slow
def test_each_way_is_checked_that_is_named(run: Run, model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.random.default_rng(1).standard_normal((2, 3, 64)).astype(np.float32))
    ways = ("--way", "session,provider", "--inputs", tmp_path / "feeds.npz")
    code, shown, _ = run("check", model, *ways)
    assert (code, "y, session" in shown, "y, provider" in shown) == (0, True, True)
    assert run("check", model, "--way", "compile")[0] == 2
    assert "way: expected one of compile, session, provider, got 'gpu'" in run("check", model, "--way", "gpu")[2]


@pytest.mark.parametrize(
    "words, message",
    [
        (("--dim", "length=5"), "expected a size for n, past, got one for 'length'"),
        (("--dim", "past"), "size: expected NAME=N such as past=5, got 'past'"),
        (("--inputs", "other.npz"), "other.npz: expected an .npz with x, got z"),
        (("--inputs", "broken.npz"), "broken.npz holds no arrays: "),
        (("--inputs", "wrong.npz"), "input 'x' of the data: expected shape (any, any, 64), got (2, 2, 63)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(model.parent)
    np.savez("other.npz", z=np.zeros(3))
    np.savez("wrong.npz", x=np.zeros((2, 2, 63), np.float32))
    Path("broken.npz").write_bytes(b"PK\x03\x04")
    for command in (("check", "--runs", "1"), ("bench", "--seconds", "0")):
        code, _, error = run(command[0], model, *command[1:], *words)
        assert code == 2
        assert error.startswith(f"error: {message}")
        assert error.count("\n") == 1


@pytest.mark.slow
def test_a_model_that_is_covered_in_part_is_measured_as_a_session_runs_it(
    run: Run, model: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.zeros((3, 4, 64), np.float32))
    report = tmp_path / "r.json"
    words = ("--seconds", 0, "--inputs", tmp_path / "feeds.npz", "--against", "provider", "--report", report)
    code, shown, _ = run("bench", model, *words)
    assert code == 0
    assert "operator CumSum (ai.onnx 17): no native code, a session leaves it to onnxruntime" in " ".join(shown.split())
    rows = json.loads(report.read_text())["rows"]
    assert [(row["engine"], row["batch"]) for row in rows] == [("session", 3), ("provider", 3), ("onnxruntime", 3)]
    code, shown, _ = run("bench", model, "--seconds", 0, "--batch", 1, "--report", report)
    assert code == 0
    assert [row["engine"] for row in json.loads(report.read_text())["rows"]] == ["session", "onnxruntime"]
    assert "past is 8 in these inputs; --dim past=128 gives another size" in shown


@pytest.mark.slow
def test_a_model_that_is_covered_in_part_is_tuned(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    code, shown, _ = run("tune", model, "--seconds", 3)
    assert code == 0
    assert "predicted us measured us" in shown


def test_rows_whose_median_says_little_are_marked() -> None:
    quiet, loud = (BenchRow("m", "native", 1, 1, median, 100.0, 2.0) for median in (129.0, 131.0))
    assert (quiet.is_disturbed, loud.is_disturbed) == (False, True)
    ends = [line.split()[-2] for line in bench_table([quiet, loud]).splitlines()[2:]]
    assert ends == ["2.00x", "2.00x*"]
    assert disturbed_line([quiet]) == ""
    assert disturbed_line([quiet, loud]).startswith("* 1 disturbed: the median is over 1.3 times the minimum")


def test_ratios_are_those_of_the_fastest_calls_where_others_disturbed() -> None:
    quiet, loud = Timing(220.0, 200.0, 9), Timing(9_000.0, 300.0, 9)
    assert speed_ratio(quiet, Timing(110.0, 90.0, 9)) == 2.0
    assert speed_ratio(loud, quiet) == 1.5
