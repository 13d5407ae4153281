import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.kernels.families import FAMILIES
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.jit import host_target
from tests.support.lowering_modules import EVERY_WIDTH, Floats, best_target_first, each_target, linear_layer, native

BATCHES = (0, 1, 7, 16, 17, 48, 49, 64, 100)

MORE_SHAPES = ((1, 1), (3, 5), (64, 10), (130, 7))
SHAPES = [(33, 97), *(pytest.param(shape, marks=pytest.mark.slow) for shape in MORE_SHAPES)]

ANY_WIDTH = [name for name, family in FAMILIES.items() if 8 in family.widths and family.rounds != "groups"]

each_family = pytest.mark.parametrize("family", ANY_WIDTH)


def sparse_matrix(shape: tuple[int, int], density: float, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape).astype(np.float32)
    return np.where(rng.random(shape) < density, values, np.float32(0))


def error_bound(x: Floats, weight: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Rounding of a sum of K products in f32, whatever their order."""
    magnitude = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64)
    return (weight.shape[0] + 4) * 2.0**-24 * (magnitude + 1.0)


@each_target
@each_family
@pytest.mark.parametrize("shape", SHAPES)
def test_a_linear_layer_is_the_product_in_float64_up_to_rounding(
    target: CpuTarget, family: str, shape: tuple[int, int]
) -> None:
    weight = sparse_matrix(shape, 0.3, seed=1)
    bias = np.linspace(-1, 1, shape[1], dtype=np.float32)
    network = native(linear_layer(weight, bias, family, widths=EVERY_WIDTH), target)
    for batch in BATCHES:
        x = np.random.default_rng(batch).standard_normal((batch, shape[0])).astype(np.float32)
        exact = x.astype(np.float64) @ weight.astype(np.float64) + bias
        (result,) = network.run(None, {"x0": x})
        assert result.shape == exact.shape
        assert np.all(np.abs(result - exact) <= error_bound(x, weight))


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(
    inputs=st.integers(1, 40),
    outputs=st.integers(1, 40),
    batch=st.integers(0, 70),
    density=st.sampled_from([0.0, 0.02, 0.2, 0.9, 1.0]),
    family=st.sampled_from(ANY_WIDTH),
    seed=st.integers(0, 2**16),
)
def test_any_pattern_agrees_with_numpy(
    inputs: int, outputs: int, batch: int, density: float, family: str, seed: int
) -> None:
    weight = sparse_matrix((inputs, outputs), density, seed)
    network = native(linear_layer(weight, None, family), host_target())
    x = np.random.default_rng(seed + 1).standard_normal((batch, inputs)).astype(np.float32)
    (result,) = network.run(None, {"x0": x})
    exact = x.astype(np.float64) @ weight.astype(np.float64)
    assert np.all(np.abs(result - exact) <= error_bound(x, weight))


@pytest.mark.slow
@best_target_first
@each_family
def test_infinite_and_nan_weights_are_values_like_any_other(target: CpuTarget, family: str) -> None:
    weight = np.zeros((4, 3), dtype=np.float32)
    weight[0, 0], weight[1, 1], weight[2, 2] = np.inf, np.nan, -np.inf
    network = native(linear_layer(weight, None, family), target)
    x = np.full((5, 4), 2.0, dtype=np.float32)
    (result,) = network.run(None, {"x0": x})
    assert np.array_equal(result, np.tile(np.array([np.inf, np.nan, -np.inf]), (5, 1)), equal_nan=True)


@pytest.mark.slow
@each_family
def test_the_activation_is_applied_in_the_kernel(family: str) -> None:
    weight = sparse_matrix((20, 30), 0.4, seed=3)
    network = native(linear_layer(weight, None, family, ActivationAttr("leaky_relu", (0.25,))), host_target())
    x = np.random.default_rng(4).standard_normal((9, 20)).astype(np.float32)
    (result,) = network.run(None, {"x0": x})
    exact = x.astype(np.float64) @ weight
    assert np.all(np.abs(result - np.where(exact < 0, 0.25 * exact, exact)) <= error_bound(x, weight))


@pytest.mark.slow
@each_family
def test_results_do_not_depend_on_the_number_of_threads(family: str) -> None:
    weight = sparse_matrix((50, 60), 0.2, seed=5)
    module = linear_layer(weight, None, family, ActivationAttr("relu"))
    x = np.random.default_rng(6).standard_normal((333, 50)).astype(np.float32)
    (one,) = native(module, host_target(), 1).run(None, {"x0": x})
    (three,) = native(module, host_target(), 3).run(None, {"x0": x})
    assert one.tobytes() == three.tobytes()


@pytest.mark.slow
@each_family
def test_a_row_does_not_depend_on_its_neighbours(family: str) -> None:
    weight = sparse_matrix((50, 60), 0.2, seed=7)
    network = native(linear_layer(weight, None, family), host_target())
    x = np.random.default_rng(8).standard_normal((77, 50)).astype(np.float32)
    (together,) = network.run(None, {"x0": x})
    alone = np.concatenate([network.run(None, {"x0": x[row : row + 1]})[0] for row in range(77)])
    assert together.tobytes() == alone.tobytes()
