"""Networks wider than a cache run depth first where neurons have an order for that, and compute the same function."""

from collections.abc import Sequence

import numpy as np
import pytest
from lowering_modules import each_target, native, tiled
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes import ActivationAttr, KernelAttr
from redpebble.dialect.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.depth_first import DepthFirstAttr
from redpebble.dialect.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, CscMatrix, f32_tensor
from redpebble.dialect.tile import TileOp
from redpebble.lowering.target import CpuTarget
from redpebble.passes.schedule_network import ScheduleNetwork

WIDTH = 512
SMALL_CACHE = ScheduleNetwork(l1_bytes=1 << 13, l2_bytes=1 << 17)
"""A cache that the layers leave; the values of a few hundred neurons fit."""


def chain(structure: str, depth: int) -> ModuleOp:
    """Layers of a shuffled structure in one tile."""
    rng = np.random.default_rng(0)
    orders = [rng.permutation(WIDTH) for _ in range(depth + 1)]
    own = np.arange(WIDTH)

    def weight(layer: int) -> CscMatrix:
        match structure:
            case "band":
                reads = (own[:, None] + np.arange(-2, 3)) % WIDTH
            case "butterfly":
                reads = np.stack([own, own ^ (1 << layer % 9)], axis=1)
            case _:
                reads = np.stack([rng.permutation(WIDTH)[:5] for _ in own])
        matrix = np.zeros((WIDTH, WIDTH), dtype=np.float32)
        matrix[orders[layer][reads], orders[layer + 1][own][:, None]] = rng.standard_normal(reads.shape)
        return CscMatrix.from_dense(matrix)

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        value = arguments[0]
        for layer in range(depth):
            bias = ConstantOp(rng.standard_normal(WIDTH).astype(np.float32))
            constants = [SparseConstantOp(weight(layer)), bias]
            activation = ActivationAttr.of("relu") if layer % 3 else None
            linear = LinearOp(value, *(constant.result for constant in constants), activation=activation)
            linear.kernel = KernelAttr.of("count_blocks", "by the test")
            block.add_ops([*constants, linear])
            value = linear.result
        return [value]

    return tiled([f32_tensor((DYNAMIC, WIDTH))], body, (8, 16))


def scheduled(module: ModuleOp) -> DepthFirstAttr | None:
    SMALL_CACHE.apply(Context(), module)
    module.verify()
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    return tile.depth_first


@each_target
@pytest.mark.parametrize(("structure", "groups"), [("band", [range(9)]), ("butterfly", [range(7), range(7, 9)])])
def test_the_schedule_computes_the_same(structure: str, groups: list[range], target: CpuTarget) -> None:
    plain, module = native(chain(structure, 9), target), chain(structure, 9)
    schedule = scheduled(module)
    assert schedule is not None
    assert [group.layers for group in schedule.groups] == groups
    network, rng = native(module, target, threads=2), np.random.default_rng(1)
    for batch in (0, 1, 7, 17, 64, 65, 200):
        x = rng.standard_normal((batch, WIDTH)).astype(np.float32)
        expected = plain(x)
        scale = float(np.abs(expected).max(initial=1))
        np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-5 * scale)
        np.testing.assert_array_equal(network(x, threads=1), network(x))


def test_random_layers_run_one_by_one() -> None:
    assert scheduled(chain("random", 6)) is None


def test_layers_that_fit_the_cache_run_one_by_one() -> None:
    module = chain("band", 3)
    ScheduleNetwork().apply(Context(), module)
    assert [op.depth_first for op in module.walk() if isinstance(op, TileOp)] == [None]
