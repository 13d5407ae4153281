"""Depth-first orders run, share slots only when they may, and keep few values alive where neurons read neighbours."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.depth_first.depth_first_order import (
    BLOCK,
    Blocks,
    DepthFirstOrder,
    order_neurons,
    positioned_graph,
)
from tests.support.network_strategies import networks

Indices = NDArray[np.int64]


def layered(source_of: list[Indices], width: int, rng: np.random.Generator) -> NeuronGraph:
    """Layers in which neuron n reads the neurons `source_of[layer][n]` of the layer before, shuffled by layer."""
    orders = [rng.permutation(width) for _ in range(len(source_of) + 1)]
    sources = [orders[layer][reads.ravel()] + layer * width for layer, reads in enumerate(source_of)]
    targets = [
        np.repeat(orders[layer + 1][: len(reads)], reads.shape[1]) + (layer + 1) * width
        for layer, reads in enumerate(source_of)
    ]
    count = width * (len(source_of) + 1)
    last = np.arange(count - width, count)
    return NeuronGraph(count, np.concatenate(sources), np.concatenate(targets), np.arange(width), last)


def band(width: int, reach: int, layers: int) -> list[Indices]:
    return [(np.arange(width)[:, None] + np.arange(reach)) % width for _ in range(layers)]


def ordered(network: NeuronGraph, block: int) -> DepthFirstOrder:
    return order_neurons(positioned_graph(network), Blocks(block))


def replay(network: NeuronGraph, found: DepthFirstOrder) -> None:
    """Run the order on slots that hold the number of the neuron they belong to."""
    slots = np.full(found.slot_count, -1, dtype=np.int64)
    inputs = set(network.inputs.tolist())
    for neurons in np.split(found.order, found.runs[1:]):
        needed = np.unique(network.sources[np.isin(network.targets, neurons)])
        for neuron in needed[[int(one) in inputs and slots[found.slots[one]] != one for one in needed]]:
            slots[found.slots[neuron]] = neuron
        for neuron in neurons.tolist():
            for source in network.sources[network.incoming.of(neuron)].tolist():
                assert slots[found.slots[source]] == source
            slots[found.slots[neuron]] = neuron
        for neuron in neurons[np.isin(neurons, network.outputs)].tolist():
            assert slots[found.slots[neuron]] == neuron


@settings(max_examples=60, deadline=None)
@given(network=networks())
def test_every_value_is_in_its_slot_when_it_is_read(network: NeuronGraph) -> None:
    for block in (1, 3, 256):
        found = ordered(network, block)
        assert len(np.unique(found.order)) == len(found.order)
        assert set(network.outputs.tolist()) <= set(found.order.tolist())
        assert not set(network.inputs.tolist()) & set(found.order.tolist())
        replay(network, found)


@settings(max_examples=30, deadline=None)
@given(network=networks(), seed=st.integers(0, 99), levels=st.sampled_from([0, 1, 2, 4]))
def test_every_value_is_in_its_slot_in_any_order_of_blocks(network: NeuronGraph, seed: int, levels: int) -> None:
    blocks = np.random.default_rng(seed).permutation(-(-len(network.outputs) // 2)).tolist()
    found = order_neurons(positioned_graph(network), Blocks(2, blocks, levels, seed % 2 == 0))
    assert sorted(found.order) == sorted(ordered(network, 2).order)
    replay(network, found)


def test_a_shuffled_band_keeps_a_small_multiple_of_its_reach_alive() -> None:
    network = layered(band(2048, 8, 6), 2048, np.random.default_rng(0))
    found = ordered(network, 16)
    # seven levels of a window that grows by 8 a layer, from both ends of the band, which is a ring
    assert found.slot_count <= 4 * 7 * 8 + 16 * 4


def test_shuffled_blocks_keep_one_block_alive() -> None:
    rng = np.random.default_rng(1)
    start = np.arange(1024)[:, None] // 32 * 32
    network = layered([start + np.arange(32) for _ in range(5)], 1024, rng)
    assert ordered(network, 8).slot_count <= 32 * 3


def test_blocks_that_run_part_by_part_keep_fewer_values_alive() -> None:
    own = np.arange(4096)
    network = layered(
        [np.stack([own, own ^ (1 << level)], axis=1) for level in range(8)], 4096, np.random.default_rng(3)
    )
    graph = positioned_graph(network)
    whole, parts = order_neurons(graph, Blocks(256)), order_neurons(graph, Blocks(256, levels=4))
    replay(network, parts)
    assert sorted(whole.order) == sorted(parts.order)
    assert len(parts.runs) > len(whole.runs)
    assert parts.slot_count < 0.7 * whole.slot_count


def test_a_random_network_keeps_whole_layers_alive() -> None:
    rng = np.random.default_rng(2)
    network = layered([np.stack([rng.permutation(512)[:16] for _ in range(512)]) for _ in range(4)], 512, rng)
    assert ordered(network, BLOCK).slot_count >= 512


@pytest.mark.parametrize("block", [1, 100])
def test_what_no_output_depends_on_is_not_computed(block: int) -> None:
    network = NeuronGraph(5, np.array([0, 0, 1]), np.array([2, 3, 4]), np.array([0, 1]), np.array([2]))
    found = ordered(network, block)
    assert found.order.tolist() == [2]
    assert (found.slots >= 0).tolist() == [True, False, True, False, False]
