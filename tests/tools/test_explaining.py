"""`redpebble.explain` and `redpebble.bench`: what the commands show, in Python."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import onnxruntime
import pytest

import redpebble
from redpebble.models import zoo


@pytest.fixture
def model(tmp_path: Path) -> Path:
    zoo.save(zoo.build("ffnn(depth=2, width=32, density=0.1)"), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_layers_and_movement_are_explained(model: Path) -> None:
    found = redpebble.explain(model, memory=8, seconds=0)
    first, last = found.report
    assert (first.inputs, last.outputs) == (32, 32)
    assert all(layer.measured_us for layer in found.report)
    assert found.network is not None
    assert found.network.instance_lower <= found.network.orders["pull"]["min"].total


def test_a_memory_of_no_room_is_refused(model: Path) -> None:
    with pytest.raises(ValueError, match="memory"):
        redpebble.explain(model, memory=1)


def test_engines_are_measured_at_each_batch(model: Path) -> None:
    rows = redpebble.bench(model, batches=(1, 3), against=(), seconds=0.01, callers=0).rows
    engines = {"session", "native", "onnxruntime"}
    assert {(row.engine, row.batch) for row in rows} == {(engine, batch) for engine in engines for batch in (1, 3)}
    assert all(row.speedup_vs_onnxruntime > 0 for row in rows)
    assert [row.speedup_vs_onnxruntime for row in rows if row.engine == "onnxruntime"] == [1.0, 1.0]


def test_a_benchmark_shows_its_machine_versions_and_throughput_as_markdown(model: Path) -> None:
    found = redpebble.bench(model, batches=[3], against=["scipy"], seconds=0, callers=2)
    assert {row.engine for row in found.rows if row.calls_per_second} == {"session", "native", "onnxruntime"}
    assert all(0 < row.min_us <= row.p99_us for row in found.rows)
    first, _, header, rule, *lines = str(found).splitlines()
    assert first.startswith(f"{model.name}: ")
    assert f"redpebble {redpebble.__version__}, onnxruntime {onnxruntime.__version__}, scipy " in first
    assert header.split("|")[-2].strip() == "calls/s, 2 callers"
    assert {*rule} == {*"|-: "}
    assert [line.split()[5] for line in lines[:2]] == ["session", "native"]
    assert {len(line) for line in (header, rule, *lines[:4])} == {len(header)}


def test_a_benchmark_is_called_by_its_name_beside_the_folder_of_suites() -> None:
    assert isinstance(import_module("redpebble.bench.kernel_call"), ModuleType)
    with pytest.raises(ValueError, match="batches: expected 1 or more each, got none"):
        redpebble.bench("no.onnx", batches=())


def test_an_engine_that_does_not_exist_is_refused(model: Path) -> None:
    with pytest.raises(ValueError, match="abacus"):
        redpebble.bench(model, against=["abacus"])
