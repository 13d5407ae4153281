"""`redpebble.explain` and `redpebble.measure`: what the commands show, in Python."""

from pathlib import Path

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
    rows = redpebble.measure(model, batches=(1, 3), seconds=0.01)
    engines = {"session", "native", "onnxruntime"}
    assert {(row.engine, row.batch) for row in rows} == {(engine, batch) for engine in engines for batch in (1, 3)}
    assert all(row.speedup_vs_onnxruntime > 0 for row in rows)
    assert [row.speedup_vs_onnxruntime for row in rows if row.engine == "onnxruntime"] == [1.0, 1.0]


def test_an_engine_that_does_not_exist_is_refused(model: Path) -> None:
    with pytest.raises(ValueError, match="abacus"):
        redpebble.measure(model, against=["abacus"])
