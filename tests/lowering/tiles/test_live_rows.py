"""Tiles whose dead rows are dropped give every row the bits that it has where nothing is dropped."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.ops.tile_dead_rows import DeadRowsAttr, keeps_zeros
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.tiles.drop_dead_rows import DropDeadRows, dropping_layers
from redpebble.runtime.jit import host_target
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import Floats, best_target_first, native, tiled

WIDTHS = (40, 56, 33, 64, 48, 40)
CLAMP = ActivationAttr("clip", (0.0, 32.0))


def chain(seed: int = 0, first_bias: float = -0.3) -> ModuleOp:
    """A tile of layers in which a row of zeros stays one, but for the first layer where its bias is positive."""
    rng = np.random.default_rng(seed)

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        value = arguments[0]
        for number, (inputs, outputs) in enumerate(pairwise(WIDTHS)):
            weight = np.where(rng.random((inputs, outputs)) < 0.2, rng.random((inputs, outputs)), 0) * 0.6
            bias = np.full(outputs, first_bias if number == 0 else -0.3, dtype=np.float32)
            constants = [SparseConstantOp(CscMatrix.from_dense(weight.astype(np.float32))), ConstantOp(bias)]
            layer = LinearOp(value, *(constant.result for constant in constants), activation=CLAMP)
            layer.kernel = KernelAttr({1: "count_blocks"}, "by the test")
            block.add_ops([*constants, layer])
            value = layer.result
        return [value]

    return tiled([f32_tensor((DYNAMIC, WIDTHS[0]))], body, (8, 32))


def dropping(module: ModuleOp) -> ModuleOp:
    DropDeadRows().apply(Context(), module)
    module.verify()
    return module


def rows_of_all_kinds(batch: int, rng: np.random.Generator) -> Floats:
    """Rows with few to many ones: some die at once, some on the way, some never."""
    return (rng.random((batch, WIDTHS[0])) < rng.random((batch, 1)) * 0.3).astype(np.float32)


@pytest.mark.slow
@best_target_first
def test_every_row_is_what_it_is_without_dropping(target: CpuTarget) -> None:
    plain, compacted = native(chain(), target), native(dropping(chain()), target, threads=2)
    rng = np.random.default_rng(1)
    for batch in (0, 1, 7, 17, 48, 49, 96, 97, 500, 3000):
        x = rows_of_all_kinds(batch, rng)
        expected = plain(x)
        np.testing.assert_array_equal(compacted(x), expected)
        np.testing.assert_array_equal(compacted(x, threads=1), expected)
        bound = compacted.bind({"x0": x})
        for _ in range(2):
            np.testing.assert_array_equal(bound.run()[0], expected)
        if batch == 3000:
            alive = np.count_nonzero(np.asarray(expected).any(axis=1))
            assert 300 < alive < 2700


@pytest.mark.slow
def test_rows_are_kept_apart_that_hold_no_numbers() -> None:
    x = rows_of_all_kinds(300, np.random.default_rng(2))
    x[5, 3], x[99, 0], x[201] = np.nan, np.inf, np.nan
    np.testing.assert_array_equal(native(dropping(chain()), host_target())(x), native(chain(), host_target())(x))


@pytest.mark.slow
def test_nothing_is_dropped_before_a_layer_that_makes_something_of_zeros() -> None:
    module = dropping(chain(first_bias=0.1))
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    assert tile.dead_rows == DeadRowsAttr([0, 1, 2, 3], 48)
    x = np.zeros((100, WIDTHS[0]), dtype=np.float32)
    np.testing.assert_array_equal(native(module, host_target())(x), native(chain(first_bias=0.1), host_target())(x))


def test_a_layer_with_an_infinite_weight_makes_more_than_zeros_of_zeros() -> None:
    def layer(value: float, activation: str) -> LinearOp:
        x, weight = (
            ConstantOp(np.zeros((1, 2), dtype=np.float32)),
            ConstantOp(np.array([[1], [value]], dtype=np.float32)),
        )
        return LinearOp(x.result, weight.result, None, ActivationAttr(activation))

    assert keeps_zeros(layer(2.0, "relu"))
    assert not keeps_zeros(layer(np.inf, "relu"))
    assert not keeps_zeros(layer(2.0, "sigmoid"))


@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 2), (5, 5), (0, 120), (7, 30)])
def test_rows_are_dropped_where_zeros_stay_and_ever_more_rarely(first: int, count: int) -> None:
    layers = dropping_layers(first, count)
    assert all(max(0, first - 1) <= layer < count - 1 for layer in layers)
    assert list(np.diff(layers)) == sorted(np.diff(layers))
    assert bool(layers) == (max(0, first - 1) < count - 1)
