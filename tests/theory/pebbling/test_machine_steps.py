"""Steps carried out on numbers give what the network computes, and are as many as the machine counts."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import Memory, Policy
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.machine_steps import StepKind, plan_steps
from redpebble.theory.pebbling.orders.simple_orders import pull_order
from tests.support.network_strategies import SEEDS, networks
from tests.support.neuron_graphs import random_layers
from tests.support.random_orders import random_order

POLICIES = st.sampled_from(("min", "lru"))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(network=networks(), capacity=st.integers(3, 12), policy=POLICIES, seed=SEEDS)
def test_loads_connections_and_stores_are_those_that_the_machine_counts(
    network: NeuronGraph, capacity: int, policy: str, seed: int
) -> None:
    memory = Memory(capacity, cast("Policy", policy))
    order = random_order(network, np.random.default_rng(seed))
    steps, count = plan_steps(network, order, memory), count_transfers(network, order, memory)
    times = np.bincount(steps[:, 0], minlength=len(StepKind)).tolist()
    assert times[StepKind.CONNECT] == count.weight_reads
    assert times[StepKind.LOAD_BIAS] == count.bias_reads
    assert times[StepKind.LOAD_ROW] == count.row_reads
    assert times[StepKind.STORE_ROW] == count.row_writes
    np.testing.assert_array_equal(steps[steps[:, 0] == StepKind.CONNECT, 3], order)
    assert steps[:, 1:3].max(initial=0) < capacity - 1


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(network=networks(), capacity=st.integers(3, 12), policy=POLICIES, seed=SEEDS)
def test_carried_out_on_numbers_they_compute_the_network(
    network: NeuronGraph, capacity: int, policy: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weights, biases = rng.standard_normal(network.connection_count), rng.standard_normal(network.neuron_count)
    steps = plan_steps(network, random_order(network, rng), Memory(capacity, cast("Policy", policy)))
    slow = dict(zip(network.inputs.tolist(), rng.standard_normal(len(network.inputs)).tolist(), strict=True))
    expected = _values(network, slow, weights, biases)
    slots = np.full(capacity - 1, np.nan)
    for kind, slot, other, number in steps.tolist():
        match StepKind(kind):
            case StepKind.LOAD_BIAS:
                slots[slot] = biases[number]
            case StepKind.LOAD_ROW:
                slots[slot] = slow[number]
            case StepKind.CONNECT:
                slots[other] += weights[number] * slots[slot]
            case StepKind.FINISH:
                slots[slot] = np.tanh(slots[slot])
            case StepKind.STORE_ROW:
                slow[number] = slots[slot]
    for output in network.outputs.tolist():
        assert slow[output] == pytest.approx(expected[output], rel=1e-9, abs=1e-9)


def _values(
    network: NeuronGraph, inputs: dict[int, float], weights: NDArray[np.float64], biases: NDArray[np.float64]
) -> NDArray[np.float64]:
    """All neurons, one after the other."""
    values = np.zeros(network.neuron_count)
    for neuron in network.topological_order.tolist():
        incoming = network.incoming.of(neuron)
        total = biases[neuron] + weights[incoming] @ values[network.sources[incoming]]
        values[neuron] = inputs[neuron] if neuron in inputs else np.tanh(total)
    return values


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [3, 30, 100, 1000])
@pytest.mark.parametrize("policy", ["min", "lru"])
def test_a_large_order_moves_as_much_as_the_machine_counts(capacity: int, policy: Policy) -> None:
    network = random_layers([120] * 4, 0.2, np.random.default_rng(0))
    steps = plan_steps(network, pull_order(network), Memory(capacity, policy))
    count = count_transfers(network, pull_order(network), Memory(capacity, policy))
    times = np.bincount(steps[:, 0], minlength=len(StepKind)).tolist()
    assert times[StepKind.LOAD_BIAS] == count.bias_reads
    assert times[StepKind.LOAD_ROW] == count.row_reads
    assert times[StepKind.STORE_ROW] == count.row_writes


def test_what_is_no_order_is_refused() -> None:
    network = random_layers([2, 2], 1.0, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"^connection 0 occurs 4 times in the order$"):
        plan_steps(network, np.zeros(4, dtype=np.int64), Memory(3))
