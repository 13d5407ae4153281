"""The panel kernels against float64, over panels of every height, exact and mixed, and on every target."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.kernels.family import LayerWeights
from redpebble.kernels.formats.row_panels import SECTIONS, pack
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.kernels.discover_structure import DiscoverStructure
from redpebble.passes.simplify.sparsify import Sparsify
from redpebble.runtime.jit import host_target
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import Floats, best_target_first, each_target, linear_layer, native

BATCHES = (0, 1, 7, 17, 64, 130)


def grouped(heights: list[int], inputs: int, noise: float, seed: int) -> Floats:
    """A weight [inputs, outputs] whose outputs share inputs in groups of these heights, shuffled, with some noise."""
    rng = np.random.default_rng(seed)
    columns = [np.repeat(rng.random((inputs, 1)) < 0.4, height, axis=1) for height in heights]
    mask = np.concatenate(columns, axis=1)
    mask ^= rng.random(mask.shape) < noise
    values = rng.standard_normal(mask.shape).astype(np.float32)
    return np.where(mask, values, np.float32(0))[:, rng.permutation(mask.shape[1])]


def with_panels(weight: Floats, activation: ActivationAttr | None = None, widths: tuple[int, ...] = ()) -> ModuleOp:
    """A layer of the panel family whose structure the passes have found, for tiles of all widths or some."""
    module = linear_layer(weight, np.linspace(-1, 1, weight.shape[1], dtype=np.float32), "row_panels", activation)
    for found in (Sparsify(), DiscoverStructure()):
        found.apply(Context(), module)
    for tile in module.walk():
        if isinstance(tile, TileOp) and widths:
            tile.schedule = ScheduleAttr(widths)
    return module


def assert_exact(weight: Floats, target: CpuTarget, widths: tuple[int, ...] = ()) -> None:
    network = native(with_panels(weight, widths=widths), target)
    for batch in BATCHES:
        x = np.random.default_rng(batch).standard_normal((batch, weight.shape[0])).astype(np.float32)
        exact = x.astype(np.float64) @ weight.astype(np.float64) + np.linspace(-1, 1, weight.shape[1])
        magnitude = np.abs(x).astype(np.float64) @ np.abs(weight) + 1.0
        assert np.all(np.abs(network(x) - exact) <= (weight.shape[0] + 4) * 2.0**-24 * magnitude)


@pytest.mark.slow
@each_target
@pytest.mark.parametrize("noise", [pytest.param(0.0, marks=pytest.mark.slow), 0.03])
def test_panels_of_every_height_agree_with_float64(target: CpuTarget, noise: float) -> None:
    assert_exact(grouped([16, 8, 12, 6, 4, 3, 2, 1], 70, noise, seed=1), target, (1, 16, 48))


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(
    heights=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    inputs=st.integers(1, 40),
    noise=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 2**16),
)
def test_any_groups_agree_with_float64(heights: list[int], inputs: int, noise: float, seed: int) -> None:
    assert_exact(grouped(heights, inputs, noise, seed), host_target(), (8, 48))


def test_a_row_that_reads_nothing_is_its_bias() -> None:
    weight = np.concatenate([grouped([8], 30, 0.0, 2), np.zeros((30, 9), dtype=np.float32)], axis=1)
    assert_exact(weight, host_target())


@pytest.mark.slow
@best_target_first
def test_what_a_row_does_not_read_may_be_infinite(target: CpuTarget) -> None:
    weight = grouped([16, 8], 40, 0.05, seed=3)
    x = np.ones((20, 40), dtype=np.float32)
    x[:, 0] = np.inf
    x[:, 1] = np.nan
    result = native(with_panels(weight), target)(x)
    assert isinstance(result, np.ndarray)
    touched = (weight[:2] != 0).any(axis=0)
    assert np.isfinite(result[:, ~touched]).all()
    assert not np.isfinite(result[:, touched]).any()


@pytest.mark.slow
def test_the_activation_is_applied_to_panels_too() -> None:
    weight = grouped([16, 8, 3], 40, 0.05, seed=4)
    network = native(with_panels(weight, ActivationAttr("relu")), host_target())
    x = np.random.default_rng(5).standard_normal((33, 40)).astype(np.float32)
    exact = x.astype(np.float64) @ weight + np.linspace(-1, 1, weight.shape[1])
    np.testing.assert_allclose(network(x), np.maximum(exact, 0), atol=1e-4)


def test_packing_stores_every_connection_once_and_no_zeros() -> None:
    matrix = CscMatrix.from_dense(grouped([8, 8, 5], 40, 0.02, seed=6))
    panels = [np.arange(16).reshape(2, 8), np.array([[16, 18, 20]])]
    packed = pack(LayerWeights(matrix, np.zeros(matrix.shape[1], dtype=np.float32), panels))
    np.testing.assert_array_equal(np.sort(packed.weights), np.sort(matrix.values))
    assert packed.heads.sum() == 2 + 2 + 2  # a panel of 3 becomes one of 2 and one of 1, and two rows stand alone
    assert sum(section.height * int(count) for section, count in zip(SECTIONS, packed.heads, strict=True)) == 21


def test_the_structure_of_a_random_mask_is_none() -> None:
    rng = np.random.default_rng(7)
    module = linear_layer(np.where(rng.random((90, 90)) < 0.2, np.float32(1), np.float32(0)), None, "row_panels")
    for found in (Sparsify(), DiscoverStructure()):
        found.apply(Context(), module)
    assert [op.panels for op in module.walk() if isinstance(op, SparseConstantOp)] == [None]
    assert not [op for op in module.walk() if isinstance(op, ConstantOp)]
