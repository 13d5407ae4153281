"""Random models of everything that is covered, in onnxruntime, as native code, and after `optimize`."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import redpebble
from redpebble.frontend.reading.model_source import read_model
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.jit import host_target
from redpebble.verification.oracle import Oracle, OracleError
from tests.end_to_end.agreement import ATOL, RTOL, Float64, largest_error
from tests.end_to_end.random_graphs import DrawnModel, attending_models, models
from tests.support.lowering_modules import HERE

TARGETS = (*reversed(HERE.values()), host_target())

REPEATABLE = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
"""The same examples everywhere: a failure on another machine is a failure of the machine's own code."""


def disagree(ours: list[NDArray[Any]], theirs: list[NDArray[Any]]) -> bool:
    """Whether values are apart by more than the tolerance, taken relative to the largest value of the output."""
    pairs = list(zip(ours, theirs, strict=True))
    assert all(mine.shape == other.shape and mine.dtype == other.dtype for mine, other in pairs)
    return any(
        not np.allclose(mine, other, RTOL, max(ATOL, RTOL * float(np.max(np.abs(other), initial=0.0))), equal_nan=True)
        for mine, other in pairs
    )


def expected_of(oracle: Oracle, drawn: DrawnModel, batch: int) -> list[NDArray[Any]]:
    """What onnxruntime computes; it refuses a batch of 0 in some forms of MatMul, where float64 speaks for it."""
    try:
        return oracle.run(drawn.feeds(batch))
    except OracleError:
        assert batch == 0
        return [array.astype(np.float32) for array in Float64(drawn.proto).run(drawn.feeds(batch))]


def check(drawn: DrawnModel, target: CpuTarget) -> None:
    """Where a norm of nearly equal values amplifies what was rounded, float64 judges."""
    network = redpebble.compile(drawn.proto, target=target, cache=False)
    portable = Oracle(redpebble.optimize(drawn.proto, target="portable").model)
    oracle = Oracle(read_model(drawn.proto))
    for batch in drawn.batches:
        feeds = drawn.feeds(batch)
        expected = expected_of(oracle, drawn, batch)
        for run in (network.run(None, feeds), expected_of(portable, drawn, batch)):
            if disagree(run, expected):
                exact = Float64(drawn.proto).run(feeds)
                assert largest_error(run, exact) <= max(8 * largest_error(expected, exact), 10 * ATOL), f"batch {batch}"


@settings(REPEATABLE, max_examples=6)
@given(models(), st.sampled_from(TARGETS))
def test_a_random_model_agrees_with_onnxruntime(drawn: DrawnModel, target: CpuTarget) -> None:
    check(drawn, target)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=2)
@given(attending_models(), st.sampled_from(TARGETS))
def test_a_random_model_that_attends_agrees_with_onnxruntime(drawn: DrawnModel, target: CpuTarget) -> None:
    check(drawn, target)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=300, derandomize=False)
@given(attending_models(), st.sampled_from(TARGETS))
def test_many_random_models_that_attend_agree_with_onnxruntime(drawn: DrawnModel, target: CpuTarget) -> None:
    check(drawn, target)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=300, derandomize=False)
@given(models(), st.sampled_from(TARGETS))
def test_many_random_models_agree_with_onnxruntime(drawn: DrawnModel, target: CpuTarget) -> None:
    check(drawn, target)
