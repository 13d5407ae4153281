"""Every engine computes what it is measured on, and what cannot run says why in one line."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy.sparse import csr_array

from redpebble.models import zoo
from redpebble.models.graph_builder import GraphBuilder, Output
from redpebble.models.pruned_weights import random_bias, random_weight
from redpebble.tools.benching.engines.engines import ENGINES, ChainEngine, Onnxruntime, load_engines
from redpebble.tools.benching.engines.mkl import MklMatrix, load_mkl
from redpebble.tools.benching.engines.peers import MklPeer, ScipyPeer, TorchPeer
from redpebble.tools.benching.errors import NotCoveredError, PeerError
from redpebble.tools.benching.results import US, BenchRow, Row
from redpebble.verification.measuring import Budget, Call, TimesItself, interleave
from redpebble.verification.oracle import Oracle
from tests.bench.float64_layers import expected, mlp, saved
from tests.support.command_line import exit_code

PACKAGES = {name: name.partition("-")[0] for name in ("torch", "openvino", "openvino-bf16", "deepsparse")}


def outputs(call: Call) -> list[Any]:
    found = call()
    assert isinstance(found, list)
    return cast("list[Any]", found)


def is_missing(engine: str) -> bool:
    if engine == "mkl":
        try:
            load_mkl()
        except PeerError:
            return True
    return engine in PACKAGES and find_spec(PACKAGES[engine]) is None


def skipped(engine: str) -> None:
    if is_missing(engine):
        pytest.skip(f"{engine} is not installed")


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_agrees_with_double_precision(engine: str, threads: int, tmp_path: Path) -> None:
    skipped(engine)
    model, layers = mlp((37, 50, 19), 0.2)
    loaded = ENGINES[engine].load(saved(model, tmp_path))
    for batch in (1, 7, 17):
        x = np.random.default_rng(batch).standard_normal((batch, 37), dtype=np.float32)
        call = loaded({"x": x}, threads)
        for _ in range(2):  # a second call finds what the first one left
            (y,) = outputs(call)
            np.testing.assert_allclose(y, expected(layers, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["scipy", "mkl", "torch"])
def test_a_chain_may_have_any_activation_and_rank(engine: str, tmp_path: Path) -> None:
    skipped(engine)
    rng, builder = np.random.default_rng(0), GraphBuilder()
    value = builder.input("x", ("batch", "tokens", 24))
    for kind in ("Gelu", "Tanh"):
        weight, bias = random_weight(24, 24, 0.3, rng), random_bias(24, rng)
        value = builder.op(kind, [builder.projection(value, weight, bias, kind)], f"/{kind}")
    path = saved(builder.model("chain", {"y": Output(value, ("batch", "tokens", 24))}), tmp_path)
    feeds = {"x": rng.standard_normal((2, 3, 24), np.float32)}
    (y,) = outputs(ENGINES[engine].load(path)(feeds, 1))
    np.testing.assert_allclose(y, Oracle(path).run(feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 7, 64])
def test_mkl_multiplies_as_often_as_it_is_told(columns: int) -> None:
    skipped("mkl")
    _, ((weight, _),) = mlp((37, 50), 0.2)
    matrix = MklMatrix(csr_array(weight), columns, 2)
    x = np.random.default_rng(0).standard_normal((37, columns), dtype=np.float32)
    y = np.full((50, columns), np.nan, dtype=np.float32)
    matrix.multiply(x, y, repeats=3)
    np.testing.assert_allclose(y, weight.astype(np.float64) @ x, rtol=1e-4, atol=1e-5)


def test_a_library_that_is_missing_is_one_line(tmp_path: Path) -> None:
    model, _ = mlp((8, 8), 0.5)
    engines = {
        "onnxruntime": Onnxruntime(),
        "mkl": ChainEngine(MklPeer("no-mkl"), 0.0),
        "torch": ChainEngine(TorchPeer("no_torch"), 0.0),
    }
    loaded, skipped_lines = load_engines(list(engines), saved(model, tmp_path), engines)
    assert [*loaded] == ["onnxruntime"]
    assert skipped_lines == [
        "mkl is left out: the package no-mkl is not installed, the extra bench has it",
        "torch is left out: the package no_torch is not installed, the extra bench has it",
    ]


NOT_CHAINS = {
    "resmlp(depth=1, width=16)": r"node '/blocks.0.norm/LayerNormalization' \(pebble.layer_norm\)",
    "ffnn(depth=2, width=16, skip=True)": r"node '/layers.0/Add' \(pebble.add\)",
}


@pytest.mark.parametrize(("spec", "what"), NOT_CHAINS.items())
def test_what_is_no_chain_is_one_line(spec: str, what: str, tmp_path: Path) -> None:
    loaded, (line,) = load_engines(["native", "scipy"], saved(zoo.build(spec), tmp_path))
    assert [*loaded] == ["native"]
    assert line.startswith("scipy is left out: ")
    assert line.endswith(" is no part of a chain of linear layers")
    assert re.search(what, line)


def test_rows_of_a_suite_call_native_code_ours() -> None:
    rows = [BenchRow("m", engine, 1, 1, 2.0, 1.0, 3.0) for engine in ("native", "session")]
    assert [Row.of(row, "zoo", 5).engine for row in rows] == [US, "session"]


@pytest.mark.slow
def test_the_command_writes_a_row_for_each_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, report = saved(zoo.build("resmlp(depth=1, width=16)"), tmp_path), tmp_path / "out.json"
    words = ["bench", model, "--batch", "1,3", "--against", "onnxruntime,scipy", "--seconds", "0", "--report", report]
    assert exit_code(monkeypatch, *words) == 0
    assert "scipy is left out: " in capsys.readouterr().out
    content = json.loads(report.read_text())
    assert {*content} == {"redpebble", "command", "machine", "versions", "rows"}
    places = [(row["engine"], row["batch"], row["threads"]) for row in content["rows"]]
    assert places == [(engine, batch, 1) for batch in (1, 3) for engine in ("session", "native", "onnxruntime")]
    numbers = {"median_us", "min_us", "p99_us", "speedup_vs_onnxruntime", "calls", "callers", "calls_per_second"}
    assert all({*row} == {"model", "engine", "batch", "threads", *numbers} for row in content["rows"])
    assert all(row[number] > 0 for row in content["rows"] for number in numbers)


def test_an_engine_that_is_not_known_is_refused(tmp_path: Path) -> None:
    message = (
        "engine: expected one of session, native, provider, onnxruntime, openvino, fp32, scipy, mkl, torch, "
        "deepsparse, openvino-bf16, got 'tvm'"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        load_engines(["tvm"], tmp_path)


def test_scipy_is_always_there() -> None:
    ScipyPeer().check()


def test_an_engine_in_its_own_process_computes_the_same_and_times_itself(tmp_path: Path) -> None:
    model, layers = mlp((37, 50, 19), 0.2)
    path = saved(model, tmp_path)
    for engine in ("onnxruntime", "session"):
        loaded, skipped = load_engines([f"{engine}={sys.executable}"], path)
        assert not skipped
        x = np.random.default_rng(0).standard_normal((7, 37), dtype=np.float32)
        call = loaded[engine]({"x": x}, 1)
        (y,) = outputs(call)
        np.testing.assert_allclose(y, expected(layers, x), rtol=1e-4, atol=1e-5)
        times = interleave({engine: call}, Budget(0.0, least_rounds=3))[engine]
        assert isinstance(call, TimesItself)
        assert times.rounds == 3
        assert 0 < times.min_us <= times.median_us


def test_an_engine_that_a_python_lacks_is_left_out_with_a_line(tmp_path: Path) -> None:
    path = saved(mlp((8, 8), 0.5)[0], tmp_path)
    loaded, _ = load_engines([f"deepsparse={sys.executable}"], path)
    with pytest.raises(NotCoveredError, match="No module named 'deepsparse'"):
        loaded["deepsparse"]({"x": np.zeros((1, 8), np.float32)}, 1)
    assert load_engines(["openvino=/no/python"], path)[1] == ["openvino is left out: expected a Python, got /no/python"]
    with pytest.raises(ValueError, match=r"expected one of deepsparse, .*, got 'scipy'"):
        load_engines([f"scipy={sys.executable}"], path)
