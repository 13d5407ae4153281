"""Networks that run neuron by neuron along a wavefront compute what the reference semantics says, to the last ulps."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.ops.network import NetworkArrays, NetworkOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.network.schedule_wavefronts import ScheduleWavefronts
from redpebble.runtime.jit import host_target
from redpebble.theory.pebbling.neuron_graph import Network
from redpebble.theory.pebbling.orders.random_network import random_layers
from tests.support.lowering_modules import each_target, native, tiled
from tests.support.network_strategies import SEEDS, networks
from tests.support.scheduled_modules import arrays_for, network_module, numbered


def scheduled(arrays: NetworkArrays, inputs: int, block: int, widths: tuple[int, ...]) -> ModuleOp:
    """A tile of one network with a wavefront."""

    def body(inner: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        network = NetworkOp([arguments[0]], arrays, [len(arrays.outputs)])
        inner.add_op(network)
        return list(network.outputs)

    module = tiled([f32_tensor((DYNAMIC, inputs))], body, widths)
    ScheduleWavefronts(slots=1 << 20, block=block).apply(Context(), module)
    module.verify()
    return module


def assert_agrees(network: Network, target: CpuTarget, block: int, seed: int) -> None:
    graph = numbered(network)
    arrays = arrays_for(graph, np.random.default_rng(seed))
    inputs = len(graph.inputs)
    compiled = native(scheduled(arrays, inputs, block, (1, 8, 64)), target)
    reference = network_module(arrays, [inputs], [len(arrays.outputs)])
    for batch in (0, 1, 7, 70):
        x = np.random.default_rng(seed + batch).standard_normal((batch, inputs)).astype(np.float32)
        (exact,) = interpret(reference, {"x0": x.astype(np.float64)})
        np.testing.assert_allclose(compiled(x), exact, rtol=1e-4, atol=1e-5)


@settings(max_examples=4, deadline=None)
@given(network=networks().filter(lambda one: len(one.inputs) > 0), seed=SEEDS)
def test_any_network_agrees_with_the_reference(network: Network, seed: int) -> None:
    assert_agrees(network, host_target(), 1 + seed % 5, seed)


@each_target
@pytest.mark.parametrize("block", [4, 256])
def test_layers_agree_on_every_target(target: CpuTarget, block: int) -> None:
    network = random_layers([20, 30, 25, 7], 0.2, np.random.default_rng(3))
    assert_agrees(network, target, block, seed=4)


def test_a_network_without_a_small_wavefront_keeps_its_layers() -> None:
    graph = numbered(random_layers([20, 30, 25, 7], 0.5, np.random.default_rng(5)))
    arrays = arrays_for(graph, np.random.default_rng(6))
    module = network_module(arrays, [len(graph.inputs)], [len(arrays.outputs)])
    ScheduleWavefronts(slots=3).apply(Context(), module)
    assert [op.wavefront for op in module.walk() if isinstance(op, NetworkOp)] == [None]
