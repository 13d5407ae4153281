"""The maps of parts: every needed value is sent once by its owner, and nothing else; volume is connectivity - 1."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.distributed.graph.ownership import Ownership, weight_for
from redpebble.distributed.graph.row_graph import RowGraph
from redpebble.distributed.parts.rank_program import rank_program
from redpebble.distributed.parts.steps import Receive, Send
from redpebble.models.graph_builder import GraphBuilder, Output
from redpebble.models.zoo import build
from redpebble.pipeline import build as build_module
from redpebble.sparse.csr import CscMatrix, CsrPattern
from redpebble.theory.partition.partition import Partition, traffic
from tests.distributed.simple_partitions import contiguous_rows, layer_groups

NOTHING = np.zeros(0, dtype=np.int64)

Weights = list[NDArray[np.float32]]


class Chain(NamedTuple):
    graph: RowGraph
    weights: Weights
    """[inputs, outputs] as compiled."""
    partition: Partition


def chain_model(weights: Weights) -> ir.Model:
    """Layers with tanh, one after the other; weights are [outputs, inputs]."""
    builder = GraphBuilder()
    value = builder.input("x", ("batch", weights[0].shape[1]))
    for index, weight in enumerate(weights):
        value = builder.linear(value, weight, np.full(len(weight), 0.5, dtype=np.float32), f"l{index}")
        value = builder.op("Tanh", [value], f"/l{index}/Tanh")
    return builder.model("chain", {"y": Output(value, ("batch", len(weights[-1])))})


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Random chains with all sorts of owners; columns without a connection and parts without a neuron occur."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    widths = draw(st.lists(st.integers(1, 12), min_size=2, max_size=4))
    density, parts = draw(st.floats(0.05, 1.0)), draw(st.integers(1, 5))
    weights: Weights = [
        (rng.standard_normal((outputs, inputs)) * (rng.random((outputs, inputs)) < density)).astype(np.float32)
        for inputs, outputs in pairwise(widths)
    ]
    module = build_module(chain_model(weights))
    graph = RowGraph.of(module)
    owners = tuple(rng.integers(0, parts, width).astype(np.int32) for width in graph.level_widths)
    return Chain(graph, [dense(graph, index) for index in range(len(graph.layers))], Partition(parts, owners))


def dense(graph: RowGraph, index: int) -> NDArray[np.float32]:
    """The connections of a compiled layer as numbers that are not 0."""
    weight = weight_for(graph.layers[index])
    if isinstance(weight, CscMatrix):
        return CscMatrix(weight.shape, weight.pointers, weight.rows, np.ones_like(weight.values)).to_dense()
    return np.ones_like(weight)


@pytest.mark.slow
@given(chains())
@settings(deadline=None, max_examples=20)
def test_every_needed_value_is_sent_once_and_nothing_else(chain: Chain) -> None:
    ownership = Ownership.of(chain.graph, chain.partition)
    values = [chain.graph.inputs[0].value, *(layer.result for layer in chain.graph.layers[:-1])]
    for level, value in enumerate(values):
        inputs, outputs = chain.partition.owners[level], chain.partition.owners[level + 1]
        for receiver in range(chain.partition.part_count):
            used = np.any(chain.weights[level][:, outputs == receiver] != 0, axis=1)
            for sender in range(chain.partition.part_count):
                expected = np.flatnonzero(used & (inputs == sender) & (sender != receiver))
                sent = ownership.sent(value, sender).get(receiver, NOTHING)
                received = ownership.received(value, receiver).get(sender, NOTHING)
                np.testing.assert_array_equal(sent, expected)
                np.testing.assert_array_equal(received, expected)


@pytest.mark.slow
@given(chains())
@settings(deadline=None, max_examples=20)
def test_the_volume_is_connectivity_minus_one(chain: Chain) -> None:
    patterns = [
        CsrPattern(np.append(0, np.cumsum(np.count_nonzero(weight, axis=0))), np.nonzero(weight.T)[1], len(weight))
        for weight in chain.weights
    ]
    expected = sum(layer.volume for layer in traffic(patterns, chain.partition))
    assert Ownership.of(chain.graph, chain.partition).volume == expected


@pytest.mark.slow
@given(chains(), st.booleans())
@settings(deadline=None, max_examples=20)
def test_steps_of_ranks_fit_each_other(chain: Chain, overlap: bool) -> None:
    ownership, parts = Ownership.of(chain.graph, chain.partition), range(chain.partition.part_count)
    programs = [rank_program(ownership, rank, overlap=overlap) for rank in parts]
    sent = {
        (step.tag, rank, route.rank): len(route.rows)
        for rank in parts
        for step in programs[rank].steps
        if isinstance(step, Send)
        for route in step.routes
    }
    received = {
        (step.tag, route.rank, rank): len(route.rows)
        for rank in parts
        for step in programs[rank].steps
        if isinstance(step, Receive)
        for route in step.routes
    }
    assert sent == received
    assert sum(sent.values()) == ownership.volume
    for program in programs:
        program.module.verify()


@pytest.mark.parametrize("spec", ["resmlp(depth=1, width=32)", "ffnn(depth=3, width=33, density=0.02, skip=True)"])
def test_steps_fit_each_other_where_values_are_needed_whole(spec: str) -> None:
    graph = RowGraph.of(build_module(build(spec)))
    for partition in (contiguous_rows(graph, 3), layer_groups(graph, 3)):
        ownership = Ownership.of(graph, partition)
        steps = [(rank, step) for rank in range(3) for step in rank_program(ownership, rank).steps]
        sent = sum(len(route.rows) for _, step in steps if isinstance(step, Send) for route in step.routes)
        received = sum(len(route.rows) for _, step in steps if isinstance(step, Receive) for route in step.routes)
        assert sent == received == ownership.volume


def test_neurons_that_need_nothing_of_others_are_computed_before_the_wait_only_on_request() -> None:
    graph = RowGraph.of(build_module(build("ffnn(depth=3, width=128, density=0.02)")))
    ownership = Ownership.of(graph, contiguous_rows(graph, 2))
    before, alone = (
        [type(step).__name__ for step in rank_program(ownership, 0, overlap=overlap).steps] for overlap in (True, False)
    )
    assert ["Send", "Call", "Receive"] in [before[place : place + 3] for place in range(len(before))]
    assert ["Send", "Call", "Receive"] not in [alone[place : place + 3] for place in range(len(alone))]


def test_groups_of_layers_share_the_connections() -> None:
    graph = RowGraph.of(build_module(build("ffnn(depth=4, width=60, density=0.2)")))
    owners = layer_groups(graph, 2).owners
    assert [int(level[0]) for level in owners] == [0, 0, 0, 1, 1]


def test_a_partition_of_another_network_is_refused() -> None:
    graph = RowGraph.of(build_module(build("ffnn(depth=2, width=20, density=0.5)")))
    widths = list(graph.level_widths)
    partition = Partition(2, tuple(np.zeros(width + 1, dtype=np.int32) for width in widths))
    with pytest.raises(ValueError, match=r"a partition of levels of \[.*\] neurons for a network of \["):
        Ownership.of(graph, partition)
