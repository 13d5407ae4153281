"""Networks wider than a cache run depth first where neurons have an order for that, and compute the same function."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.depth_first_order import Transposed
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.ops.tile_depth_first import DepthFirstAttr
from redpebble.dialect.provenance import SEARCH
from redpebble.dialect.reports.module_report import layer_reports
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.tiles.schedule_network import ScheduleNetwork
from redpebble.runtime.jit import host_target
from redpebble.sparse.csr import CscMatrix
from redpebble.tuning.group_timing import measure_groups
from tests.support.lowering_modules import best_target_first, native, tiled

WIDTH = 512
SMALL_CACHE = ScheduleNetwork(l1_bytes=1 << 13, l2_bytes=7 << 15)
"""A cache that the layers leave; the values of a few hundred neurons fit."""


def chain(structure: str, depth: int) -> ModuleOp:
    """Layers of a shuffled structure in one tile."""
    rng = np.random.default_rng(0)
    orders = [rng.permutation(WIDTH) if structure != "visible" else np.arange(WIDTH) for _ in range(depth + 1)]
    own = np.arange(WIDTH)

    def weight(layer: int) -> CscMatrix:
        match structure:
            case "band" | "visible":
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
            activation = ActivationAttr("relu") if layer % 3 else None
            linear = LinearOp(value, *(constant.result for constant in constants), activation=activation)
            linear.kernel = KernelAttr({1: "count_blocks"}, "by the test")
            block.add_ops([*constants, linear])
            value = linear.result
        return [value]

    return tiled([f32_tensor((DYNAMIC, WIDTH))], body, (8, 16))


def scheduled(module: ModuleOp, schedule: ScheduleNetwork = SMALL_CACHE) -> DepthFirstAttr | None:
    schedule.apply(Context(), module)
    module.verify()
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    return tile.depth_first


@pytest.mark.slow
@best_target_first
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


@pytest.mark.slow
@best_target_first
def test_neighbours_come_straight_from_rows_and_go_there(target: CpuTarget) -> None:
    plain, module = native(chain("visible", 4), target), chain("visible", 4)
    schedule = scheduled(module)
    assert schedule is not None
    assert [group.transposed for group in schedule.groups] == [Transposed(inputs=True, outputs=True)]
    network, rng = native(module, target), np.random.default_rng(1)
    for batch in (1, 17, 150):
        x = rng.standard_normal((batch, WIDTH)).astype(np.float32)
        expected = plain(x)
        np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-5 * float(np.abs(expected).max()))


@pytest.mark.slow
def test_inputs_that_nobody_reads_may_lie_between_neighbours() -> None:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        value = arguments[0]
        for layer in range(3):
            matrix = np.zeros((WIDTH, WIDTH), dtype=np.float32)
            for step in (0, 2) if layer == 0 else (0, 1):
                matrix[(np.arange(WIDTH) // 3 * 3 + step) % WIDTH, np.arange(WIDTH)] = step + 1
            constant = SparseConstantOp(CscMatrix.from_dense(matrix))
            linear = LinearOp(value, constant.result)
            linear.kernel = KernelAttr({1: "sparse_rows"}, "by the test")
            block.add_ops([constant, linear])
            value = linear.result
        return [value]

    module, target = tiled([f32_tensor((DYNAMIC, WIDTH))], body, (8, 16)), host_target()
    plain = native(module.clone(), target)
    schedule = scheduled(module)
    assert schedule is not None
    assert schedule.groups[0].transposed.inputs
    x = np.random.default_rng(0).standard_normal((70, WIDTH)).astype(np.float32)
    x[:, 1::3] = np.nan
    np.testing.assert_allclose(native(module, target)(x), plain(x), rtol=1e-5)


@pytest.mark.slow
def test_an_annealed_schedule_computes_the_same_and_says_what_it_gains() -> None:
    plain, module = native(chain("butterfly", 9), host_target()), chain("butterfly", 9)
    schedule = scheduled(module, replace(SMALL_CACHE, seconds=0.3))
    assert schedule is not None
    assert schedule != scheduled(chain("butterfly", 9))
    trace = module.attributes[SEARCH]
    assert isinstance(trace, StringAttr)
    found = re.fullmatch(r"(\S+) -> (\S+) us a row in \d+ proposals", trace.data)
    assert found is not None
    assert float(found[2]) < float(found[1])
    x = np.random.default_rng(1).standard_normal((130, WIDTH)).astype(np.float32)
    expected = plain(x)
    atol = 1e-5 * float(np.abs(expected).max())
    np.testing.assert_allclose(native(module, host_target())(x), expected, rtol=1e-4, atol=atol)


def test_layers_of_a_group_share_its_times_and_bytes() -> None:
    module = chain("band", 4)
    schedule = scheduled(module)
    assert schedule is not None
    measure_groups(module, host_target())
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    assert tile.depth_first is not None
    (group,) = tile.depth_first.groups
    reports = layer_reports(module)
    assert list(group.measured) == list(group.predicted)
    for width, time in group.measured.items():
        assert time > 0
        assert sum(report.measured_us[str(width)] for report in reports) == pytest.approx(time)
        predicted = group.predicted[width]
        assert sum(report.predicted_us[str(width)] for report in reports) == pytest.approx(predicted)
        assert min(report.predicted_bytes[str(width)] for report in reports) > 6 * 5 * WIDTH
    assert all(f"depth_first from {schedule.width}" in report.kernel for report in reports)


def test_random_layers_run_one_by_one() -> None:
    assert scheduled(chain("random", 6)) is None


def test_layers_that_fit_the_cache_run_one_by_one() -> None:
    module = chain("band", 3)
    ScheduleNetwork().apply(Context(), module)
    assert [op.depth_first for op in module.walk() if isinstance(op, TileOp)] == [None]
