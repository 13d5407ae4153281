from collections.abc import Sequence

import numpy as np
import pytest
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i64
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.elementwise import AddOp
from redpebble.dialect.ops.layers import LinearOp, SoftmaxOp
from redpebble.dialect.ops.movement import ConcatOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.formats.lookup_rows import AT_ONCE, FAMILY, PASS_ROWS, WIDTHS, blocks_of
from redpebble.kernels.formats.permute_lookup import MOST_TRANSPOSED
from redpebble.kernels.tile_widths import ANY_ROWS_WIDTHS
from redpebble.lowering.cpu_target import CpuTarget
from tests.lowering.kernels.test_single_row_kernels import KINDS, assert_product, weight_of
from tests.support.lowering_modules import HERE, Floats, best_target_first, linear_layer, native, tiled

BEST = next(iter(HERE.values()))

RELU = ActivationAttr("relu")


def rows_of(count: int, features: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, features)).astype(np.float32)


def one_layer(weight: Floats, bias: Floats | None = None, widths: Sequence[int] = (1, 12)) -> ModuleOp:
    kernel = KernelAttr({1: "permute_lookup", 2: FAMILY.name}, "by the test")
    return linear_layer(weight, bias, kernel, widths=widths)


@pytest.mark.slow
@best_target_first
@pytest.mark.parametrize("shape", [(1, 1), (130, 75)])
def test_any_number_of_rows_is_the_product_in_float64_up_to_rounding(target: CpuTarget, shape: tuple[int, int]) -> None:
    weight = weight_of("uniform", shape, seed=1)
    bias = np.linspace(-1, 1, shape[1], dtype=np.float32)
    network = native(one_layer(weight, bias, (PASS_ROWS + 3,)), target)
    for count in range(1, PASS_ROWS + 4):
        x = rows_of(count, shape[0])
        (result,) = network.run(None, {"x0": x})
        assert_product(result, x, weight, bias)


@pytest.mark.parametrize("kind", KINDS)
def test_any_pattern_agrees_with_numpy(kind: str) -> None:
    weight = weight_of(kind, (300, 75), seed=3)
    x = rows_of(7, 300)
    (result,) = native(one_layer(weight), BEST).run(None, {"x0": x})
    assert_product(result, x, weight)


@best_target_first
def test_inputs_are_looked_up_in_transposed_order_too(target: CpuTarget) -> None:
    weight = np.where(np.random.default_rng(5).random((MOST_TRANSPOSED, 1024)) < 0.1, np.float32(0.5), np.float32(0))
    x = rows_of(9, MOST_TRANSPOSED)
    (result,) = native(one_layer(weight), target).run(None, {"x0": x})
    assert_product(result, x, weight)


def test_a_row_has_the_same_bits_whatever_rows_are_with_it() -> None:
    weight = weight_of("skewed outputs", (200, 90), seed=6)
    x = rows_of(PASS_ROWS + 5, 200)
    network = native(one_layer(weight, widths=(PASS_ROWS + 5,)), BEST)
    (whole,) = network.run(None, {"x0": x})
    for first, end in ((0, 1), (3, 5), (7, 7 + AT_ONCE), (2, PASS_ROWS + 4)):
        (part,) = network.run(None, {"x0": x[first:end]})
        np.testing.assert_array_equal(part, whole[first:end])


def mixed(widths: Sequence[int], shares: int = 1) -> tuple[ModuleOp, list[Floats]]:
    """Two layers, of which the second one has no kernel for rows, with softmax, sum and concat beside them."""
    weights = [weight_of("uniform", shape, seed) for seed, shape in enumerate([(60, 64), (64, 64)])]

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constants: list[Operation] = [ConstantOp(weight) for weight in weights]
        hidden = LinearOp(arguments[0], constants[0].results[0], activation=RELU)
        hidden.kernel = KernelAttr({1: "permute_lookup", 2: FAMILY.name}, "by the test")
        normal = SoftmaxOp(hidden.result)
        after = LinearOp(normal.result, constants[1].results[0])
        after.kernel = KernelAttr({1: "sparse_rows", 8: "narrow_blocks"}, "by the test")
        total = AddOp(after.result, hidden.result)
        both = ConcatOp([total.result, normal.result], 1)
        if shares > 1:
            for layer in (hidden, after):
                layer.cut = DenseArrayBase.from_list(i64, [0, 32, 64])
        block.add_ops([*constants, hidden, normal, after, total, both])
        return [both.result, hidden.result]

    module = tiled([f32_tensor((DYNAMIC, 60))], body, widths)
    if shares > 1:
        (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
        times = dict.fromkeys(widths, 100.0)
        tile.schedule = ScheduleAttr(widths, shares, times, dict.fromkeys(widths, 50.0))
    return module, weights


def expected(x: Floats, weights: Sequence[Floats]) -> list[Floats]:
    hidden = np.maximum(x.astype(np.float64) @ weights[0], 0)
    shifted = np.exp(hidden - hidden.max(axis=1, keepdims=True))
    normal = shifted / shifted.sum(axis=1, keepdims=True)
    return [np.concatenate([normal @ weights[1] + hidden, normal], axis=1), hidden]


@pytest.mark.slow
@best_target_first
@pytest.mark.parametrize("shares", [1, 2])
def test_ops_without_a_kernel_for_rows_run_row_by_row_beside_it(target: CpuTarget, shares: int) -> None:
    module, weights = mixed((9,), shares)
    for count in (2, 9, 13):
        x = rows_of(count, 60)
        results = native(module.clone(), target, shares).run(None, {"x0": x})
        for result, right in zip(results, expected(x, weights), strict=True):
            np.testing.assert_allclose(result, right, rtol=2e-5, atol=2e-5)


def test_widths_are_those_for_any_number_of_rows_and_blocks_hold_all_rows() -> None:
    assert set(WIDTHS) <= set(ANY_ROWS_WIDTHS)
    assert [blocks_of(rows) for rows in (1, 6, 7, 12, 13, 24, 25)] == [1, 1, 2, 2, 3, 4, 5]
