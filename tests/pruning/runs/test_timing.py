"""Times of pruned models on a machine whose speed changes meanwhile."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx_ir
import pytest

from redpebble.frontend.reading.model_source import read_runnable_model
from redpebble.pruning.runs import timing
from redpebble.pruning.runs.timing import MeasuredTimes, ModelClock
from redpebble.verification.measuring import Budget, Timing
from tests.support.quantized_models import pruned_network


@pytest.fixture
def model() -> onnx_ir.Model:
    return read_runnable_model(pruned_network([8, 8], 0.5))


def measured(monkeypatch: pytest.MonkeyPatch, model: onnx_ir.Model, rounds: list[tuple[float, float]]) -> MeasuredTimes:
    """The times of a model that takes 100 us, then what measurements say of it and of a pruned one."""
    told: Iterator[tuple[float, ...]] = iter([(100.0,), *rounds])

    def interleave(calls: Mapping[str, Callable[[], object]], _: Budget) -> dict[str, Timing]:
        return {name: Timing(us, us, 1) for name, us in zip(calls, next(told), strict=True)}

    monkeypatch.setattr(timing, "interleave", interleave)
    clock = ModelClock(model, {"x": np.zeros((1, 8), np.float32)}, 1)
    clock.measure_original()
    return clock.times(model)


def test_a_slow_phase_of_the_machine_is_not_that_of_the_pruned_model(
    monkeypatch: pytest.MonkeyPatch, model: onnx_ir.Model
) -> None:
    slow = [(200.0, 80.0), (160.0, 80.0), (200.0, 120.0), (180.0, 70.0)]
    assert measured(monkeypatch, model, slow) == MeasuredTimes(100.0, 50.0)


def test_a_measurement_as_fast_as_before_is_the_last_one(monkeypatch: pytest.MonkeyPatch, model: onnx_ir.Model) -> None:
    assert measured(monkeypatch, model, [(200.0, 80.0), (90.0, 30.0), (1.0, 1.0)]) == MeasuredTimes(90.0, 30.0)
