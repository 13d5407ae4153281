"""Compact Growth models as users get them, ONNX files: counted, their inference moves every value once."""

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.models.zoo import build
from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.compact_growth import grow_layers
from redpebble.theory.pebbling.search.search import SearchRequest, search_order
from redpebble.tools.explain.neuron_graphs import flat_model

GROWN = (
    ((24, 32, 12), 0.2, 24, 0),
    ((40, 40, 40, 10), 0.1, 40, 1),
    ((16, 64, 16), 0.1, 32, 2),
    ((64, 30, 50, 20, 8), 0.08, 60, 3),
    ((30, 30), 0.3, 16, 4),
)
"""Widths, density, Mg and seed."""

each_model = pytest.mark.parametrize(("widths", "density", "memory", "seed"), GROWN)


@cache
def network_of_model(widths: tuple[int, ...], density: float, memory: int, seed: int) -> NeuronGraph:
    """The graph of the ONNX model, as every other model becomes one."""
    model = build(f"compact(widths={widths}, density={density}, memory={memory})", seed=seed)
    (network,) = flat_model(model).networks
    return network


def grown_order(network: NeuronGraph, grown: NeuronGraph) -> NDArray[np.int64]:
    """The connections of `network` in the order in which those between the same neurons grew."""
    keys = network.sources * network.neuron_count + network.targets
    by_key = np.argsort(keys)
    return by_key[np.searchsorted(keys[by_key], grown.sources * grown.neuron_count + grown.targets)]


@each_model
def test_along_the_order_in_which_it_grew_every_memory_from_mg_on_moves_each_value_once(
    widths: tuple[int, ...], density: float, memory: int, seed: int
) -> None:
    network = network_of_model(widths, density, memory, seed)
    grown, _ = grow_layers(widths, density, memory, np.random.default_rng(seed))
    assert network.neuron_count == grown.neuron_count
    assert network.connection_count == grown.connection_count
    order = grown_order(network, grown)
    for capacity in (memory, memory + 1, 2 * memory, sum(widths) + 1):
        for policy in ("min", "lru"):
            count = count_transfers(network, order, Memory(capacity, policy))
            assert count.reads == network.connection_count + sum(widths)
            assert count.writes == widths[-1]


@pytest.mark.slow
@each_model
def test_the_search_finds_such_an_order_from_the_model_alone(
    widths: tuple[int, ...], density: float, memory: int, seed: int
) -> None:
    network = network_of_model(widths, density, memory, seed)
    found = search_order(network, SearchRequest(memory, proposals=20_000), np.random.default_rng(0))
    count = count_transfers(network, found.order, Memory(memory))
    assert count == found.counts
    assert (count.reads, count.writes) == (network.connection_count + sum(widths), widths[-1])
