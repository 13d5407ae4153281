"""Orders that the pass writes: counted again by the reference machine, the same for the same options."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.tensors import indices_of
from redpebble.passes.network.flatten_network import FlattenNetwork
from redpebble.passes.network.schedule_connections import ScheduleConnections, counts_of
from redpebble.theory.pebbling.bounds.bounds import lower_bound
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.simple_orders import pull_order
from tests.passes.pass_texts import all_of, assert_same_function, run
from tests.passes.random_networks import BATCHES, feeds_for, network, seeds


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=seeds, memory=st.integers(3, 9), policy=st.sampled_from(("min", "lru")))
def test_the_counts_on_an_op_are_those_of_the_reference_machine(seed: int, memory: int, policy: str) -> None:
    before = network(seed)
    after = run(before, FlattenNetwork(), ScheduleConnections(memory, policy, proposals=300))
    for op in all_of(after, NetworkOp):
        assert op.order is not None
        assert op.transfers is not None
        graph, machine = op.graph, Memory(memory, "min" if policy == "min" else "lru")
        count = count_transfers(graph, indices_of(op.order), machine)
        assert op.transfers.counts == counts_of(count)
        assert lower_bound(graph).total <= count.total <= count_transfers(graph, pull_order(graph), machine).total
    assert_same_function(before, after, [feeds_for(before, batch, seed) for batch in BATCHES])


def test_the_same_options_give_the_same_order_and_another_seed_may_not_cost_more_than_the_start() -> None:
    module = run(network(3), FlattenNetwork())
    once, again = (run(module, ScheduleConnections(memory=4, seed=1, proposals=500)) for _ in range(2))
    assert all_of(once, NetworkOp)
    assert once.is_structurally_equivalent(again)
