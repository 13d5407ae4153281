"""Native code that follows an order: what it computes, and what its stream of words moves."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.semantics.interpreter import interpret
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.neurons.connection_stream import pack_stream, working_rows
from redpebble.passes.runner import context, run_passes
from redpebble.passes.tiles.form_tiles import FormTiles
from redpebble.runtime.jit import host_target
from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from tests.support.lowering_modules import best_target_first, native
from tests.support.network_strategies import SEEDS, networks
from tests.support.neuron_graphs import random_dag
from tests.support.random_orders import random_order
from tests.support.scheduled_modules import arrays_for, network_module, numbered, set_order

END, LOAD_BIASES, LOAD_ROWS, STORE_ROWS, SUM, SPREAD = range(6)
ENTRY_WORDS = {LOAD_BIASES: 2, LOAD_ROWS: 3, STORE_ROWS: 3, SUM: 2, SPREAD: 2}
"""The format of the stream as its docstring gives it; all other kinds are activations of one word an entry."""

MEMORIES = st.builds(Memory, st.integers(3, 10), st.sampled_from(("min", "lru")))


def scheduled(network: NeuronGraph, memory: Memory, seed: int, *, halves: bool = False) -> tuple[ModuleOp, NeuronGraph]:
    """A function of one network in a tile, with a random order; its operands and results are cut in two on request."""
    rng = np.random.default_rng(seed)
    graph = numbered(network)
    sizes = [len(graph.inputs), len(graph.outputs)]
    operands, results = ([size - size // 2, size // 2] if halves and size > 1 else [size] for size in sizes)
    module = network_module(arrays_for(graph, rng), operands, results)
    set_order(module, graph, random_order(graph, rng), memory)
    run_passes(context(), module, (FormTiles(),))
    return module, graph


def moved(stream: NDArray[np.uint32]) -> Counter[int]:
    """How many entries of each kind a stream has; ends where it says so."""
    found: Counter[int] = Counter()
    place = 0
    while stream[place] != END:
        kind, count = int(stream[place]), int(stream[place + 1])
        assert count > 0
        found[kind] += count
        place += 3 + count * ENTRY_WORDS.get(kind, 1)
    assert place + 3 == len(stream)
    return found


@settings(max_examples=50, deadline=None)
@given(network=networks().filter(lambda one: len(one.inputs) > 0), memory=MEMORIES, seed=SEEDS)
def test_loads_and_stores_in_the_stream_are_those_that_the_machine_counts(
    network: NeuronGraph, memory: Memory, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = numbered(network)
    module = network_module(arrays_for(graph, rng), [len(graph.inputs)], [len(graph.outputs)])
    order = random_order(graph, rng)
    op = set_order(module, graph, order, memory)
    entries, count = moved(pack_stream(op)), count_transfers(graph, order, memory)
    assert entries[SUM] + entries[SPREAD] == count.weight_reads
    assert entries[LOAD_BIASES] == count.bias_reads
    assert entries[LOAD_ROWS] == count.row_reads
    assert entries[STORE_ROWS] == count.row_writes
    assert working_rows(op).slots <= memory.capacity - 1


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(network=networks().filter(lambda one: len(one.inputs) > 0), memory=MEMORIES, seed=SEEDS, halves=st.booleans())
def test_native_code_computes_what_the_interpreter_computes(
    network: NeuronGraph, memory: Memory, seed: int, *, halves: bool
) -> None:
    module, _ = scheduled(network, memory, seed, halves=halves)
    check(module, host_target(), (0, 1, 7, 70))


@best_target_first
def test_any_target_runs_an_order_at_any_width(target: CpuTarget) -> None:
    module, _ = scheduled(random_dag(60, 0.2, np.random.default_rng(1)), Memory(8), 2, halves=True)
    check(module, target, (0, 1, 5, 8, 16, 23, 33, 64, 130))


def check(module: ModuleOp, target: CpuTarget, batches: tuple[int, ...]) -> None:
    network = native(module, target)
    widths = [tensor.shape[-1].constant or 0 for tensor in network.program.inputs]
    rng = np.random.default_rng(0)
    for batch in batches:
        feeds = {
            f"x{index}": rng.standard_normal((batch, width)).astype(np.float32) for index, width in enumerate(widths)
        }
        exact = interpret(module, {name: array.astype(np.float64) for name, array in feeds.items()})
        for found, expected in zip(network.run(None, feeds), exact, strict=True):
            largest = float(np.max(np.abs(expected), initial=1.0))
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * largest)


def test_a_network_without_steps_has_no_code() -> None:
    graph = numbered(random_dag(8, 0.4, np.random.default_rng(0)))
    arrays = arrays_for(graph, np.random.default_rng(0))
    module = network_module(arrays, [len(graph.inputs)], [len(graph.outputs)])
    run_passes(context(), module, (FormTiles(),))
    with pytest.raises(ValueError, match=r"^pebble\.network has no steps, pebble-plan-steps writes them$"):
        native(module, host_target())
