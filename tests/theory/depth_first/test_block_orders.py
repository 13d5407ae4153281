"""Blocks of outputs may be taken in any order; the one that is looked for takes what needs the fewest new values."""

import numpy as np
import pytest

from redpebble.sparse.csr import CsrPattern
from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.depth_first.annealing import Prices, Schedule, anneal_schedule
from redpebble.theory.depth_first.depth_first_order import Blocks, PositionedGraph, order_neurons, positioned_graph
from redpebble.theory.depth_first.traffic import Caches, Group, ScheduleCosts, nearest_next

WIDTH, DEPTH, BLOCK = 96, 4, 8


def chain(reads: int, seed: int, width: int = WIDTH) -> tuple[list[CsrPattern], NeuronGraph]:
    """Layers in which a neuron reads some of those around it, on a ring, and the network of all of them."""
    rng = np.random.default_rng(seed)
    own = np.arange(width)[:, None]
    sources = [np.sort((own + rng.permutation(reads)[: reads // 2 + 1]) % width, axis=1) for _ in range(DEPTH)]
    layers = [CsrPattern(np.arange(0, one.size + 1, one.shape[1]), one.ravel(), width) for one in sources]
    targets = [np.repeat(np.arange(width), one.shape[1]) + (n + 1) * width for n, one in enumerate(sources)]
    joined = np.concatenate([one.ravel() + n * width for n, one in enumerate(sources)])
    last = np.arange(DEPTH * width, (DEPTH + 1) * width)
    return layers, NeuronGraph((DEPTH + 1) * width, joined, np.concatenate(targets), np.arange(width), last)


def cones(graph: PositionedGraph) -> list[set[int]]:
    """All neurons that each block depends on."""
    found: list[set[int]] = []
    for start in range(0, len(graph.outputs), BLOCK):
        left, seen = graph.outputs[start : start + BLOCK].tolist(), set[int]()
        while left:
            neuron = left.pop()
            if neuron not in seen:
                seen.add(neuron)
                left += graph.incoming.indices[
                    graph.incoming.pointers[neuron] : graph.incoming.pointers[neuron + 1]
                ].tolist()
        found.append(seen)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_each_block_needs_the_fewest_values_that_are_not_there(seed: int) -> None:
    _, network = chain(6, seed)
    graph = positioned_graph(network)
    needed, there = cones(graph), set[int]()
    order = nearest_next(graph, BLOCK, 3)
    assert order is not None
    assert order[0] == 3
    assert sorted(order) == list(range(WIDTH // BLOCK))
    left = set(order)
    for block in order:
        missing = {one: len(needed[one] - there) for one in left}
        assert block == 3 or missing[block] == min(missing.values())
        there |= needed[block]
        left -= {block}


def test_where_all_depends_on_all_there_is_no_order() -> None:
    rng = np.random.default_rng(0)
    sources = np.concatenate([rng.permutation(512)[:128] for _ in range(512)])
    targets = np.repeat(np.arange(512), 128) + 512
    network = NeuronGraph(1024, sources, targets, np.arange(512), np.arange(512, 1024))
    assert nearest_next(positioned_graph(network), 4, 0) is None


def test_blocks_in_any_order_compute_everything_once_and_need_other_slots() -> None:
    _, network = chain(6, 0)
    graph = positioned_graph(network)
    plain = order_neurons(graph, Blocks(BLOCK))
    assert np.array_equal(order_neurons(graph, Blocks(BLOCK, range(WIDTH // BLOCK))).order, plain.order)
    found = order_neurons(graph, Blocks(BLOCK, np.random.default_rng(1).permutation(WIDTH // BLOCK).tolist()))
    assert sorted(found.order) == sorted(plain.order)
    place = np.zeros(network.neuron_count, dtype=np.int64)
    place[found.order] = np.arange(1, len(found.order) + 1)
    assert np.all(place[network.sources] < place[network.targets])
    assert found.slot_count > plain.slot_count


def test_annealing_does_not_stay_with_an_order_of_blocks_that_costs_more() -> None:
    layers, _ = chain(6, 2, 512)
    blocks = tuple(np.random.default_rng(0).permutation(512 // 16).tolist())
    prices = Prices(
        ScheduleCosts(layers, Caches(1 << 12, 1 << 15), (32,)), lambda features, width: 1e-4 * features * width, 4096
    )
    scrambled, plain = Schedule((Group(0, DEPTH, 16, blocks),), 32), Schedule((Group(0, DEPTH, 16),), 32)
    found = anneal_schedule(prices, scrambled, 0.2, np.random.default_rng(0))
    assert prices.row_us(plain) < prices.row_us(scrambled)
    assert 1e-6 * found.cost <= 1.01 * prices.row_us(plain)
