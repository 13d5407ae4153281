"""Models whose connections run in a searched order compute what onnxruntime computes."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import redpebble
from redpebble.models.zoo import build
from redpebble.passes.network.schedule_connections import ScheduleConnections
from redpebble.tools.explain.order_execution import compile_in_order
from redpebble.verification.feeds import inputs_for
from redpebble.verification.oracle import Oracle
from tests.end_to_end.agreement import Float64, assert_close, largest_error
from tests.end_to_end.random_graphs import DrawnModel, models

SPECS = (
    "compact(widths=(16, 24, 16), density=0.3, memory=32)",
    "masked_mlp(width=48)",
    "ffnn(depth=3, width=33, density=0.1, skip=True)",
    "resmlp(depth=2, width=32)",
)


def check(spec: str, schedule: ScheduleConnections, batches: tuple[int, ...]) -> None:
    model = build(spec)
    network, oracle = compile_in_order(model, schedule), Oracle(model)
    for batch in batches:
        feeds = inputs_for(model, batch, np.random.default_rng(batch))
        assert_close(network.run(None, feeds), oracle.run(feeds), f"batch {batch}")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["min", pytest.param("lru", marks=pytest.mark.slow)])
@pytest.mark.parametrize("spec", SPECS)
def test_an_order_agrees_with_onnxruntime(spec: str, policy: str) -> None:
    check(spec, ScheduleConnections(memory=12, policy=policy, proposals=200), (0, 1, 17, 64))


@pytest.mark.slow
def test_two_threads_compute_the_same_bits_as_one() -> None:
    model = build("ffnn(depth=2, width=40, density=0.2)")
    schedule = ScheduleConnections(memory=10, proposals=0)
    one, two = (compile_in_order(model, schedule, threads=threads) for threads in (1, 2))
    for batch in (1, 65, 200):
        feeds = inputs_for(model, batch, np.random.default_rng(batch))
        np.testing.assert_array_equal(one.run(None, feeds)[0], two.run(None, feeds)[0])


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["digits", "ffnn(depth=8, width=500, density=0.1)"])
def test_200_000_connections_in_order_agree_with_onnxruntime(spec: str) -> None:
    check(spec, ScheduleConnections(memory=100, proposals=0), (0, 1, 64, 100))


HERE = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@settings(HERE, max_examples=3)
@given(drawn=models())
def test_the_graphs_of_a_random_model_run_in_order(drawn: DrawnModel) -> None:
    check_drawn(drawn)


@pytest.mark.slow
@settings(HERE, max_examples=100, derandomize=False)
@given(drawn=models())
def test_the_graphs_of_many_random_models_run_in_order(drawn: DrawnModel) -> None:
    check_drawn(drawn)


def check_drawn(drawn: DrawnModel) -> None:
    """Two ways of native code; where they differ, float64 says whether the order rounds much worse."""
    plain = redpebble.compile(drawn.proto, cache=False)
    ordered = compile_in_order(drawn.proto, ScheduleConnections(memory=5, proposals=0))
    for batch in drawn.batches:
        feeds = drawn.feeds(batch)
        ours, theirs = ordered.run(None, feeds), plain.run(None, feeds)
        scale = max(float(np.max(np.abs(array), initial=1.0)) for array in theirs)
        if all(np.allclose(a, b, 1e-4, 1e-5 * scale, equal_nan=True) for a, b in zip(ours, theirs, strict=True)):
            continue
        exact = Float64(drawn.proto).run(feeds)
        assert largest_error(ours, exact) <= 8 * largest_error(theirs, exact)
