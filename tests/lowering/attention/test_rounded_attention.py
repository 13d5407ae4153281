"""Attention whose products, scores and weights are rounded to codes, against float64 numpy.

Operands are small multiples of powers of two, so that products and their roundings are exact in float32, ties included.
A weight that is next to a tie may have the other code: results are within a step of two weights.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.attention import Roundings, Weighting
from redpebble.dialect.tensors import DYNAMIC
from redpebble.lowering.cpu_target import CpuTarget
from tests.lowering.attention.test_attention import Sizes, expected, feeds, network
from tests.support.lowering_modules import Floats, best_target_first

STEP = 0.004
WEIGHTS = (ActivationAttr("quantize", (STEP, 0.0)),)
PRODUCTS = (ActivationAttr("quantize", (0.125, 120.0)),)
SCORES = (ActivationAttr("quantize", (0.25, 200.0)),)
SIZES: Sizes = (4, 2, 8, 5)


def operands(samples: int, queries: int, keys: int) -> list[Floats]:
    heads, key_heads, key_size, value_size = SIZES
    rng = np.random.default_rng((samples, queries, keys))
    shapes = ((queries, heads * key_size), (keys, key_heads * key_size), (keys, key_heads * value_size))
    return [(rng.integers(-20, 20, (samples, *shape)) / 16).astype(np.float32) for shape in shapes]


def check(target: CpuTarget, weighting: Weighting, lengths: Sequence[int], mask: Floats | None = None) -> None:
    net = network(target, SIZES, weighting, None if mask is None else (DYNAMIC, 1))
    for length in lengths:
        arrays = operands(2, length, length)
        own = None if mask is None else np.ascontiguousarray(mask[..., :length, :length])
        (result,) = net.run(None, feeds(arrays, own))
        difference = np.abs(result - expected(SIZES, weighting, arrays, own))
        largest = float(np.abs(arrays[2]).max())
        assert difference.max() <= (2.01 * STEP * largest if weighting.roundings.weights else 1e-5)
        assert np.quantile(difference, 0.9) < 1e-5


@best_target_first
@pytest.mark.parametrize(
    "roundings",
    [
        pytest.param(Roundings(weights=WEIGHTS), id="weights", marks=pytest.mark.slow),
        pytest.param(Roundings(PRODUCTS), id="products", marks=pytest.mark.slow),
        pytest.param(Roundings(scores=SCORES), id="scores", marks=pytest.mark.slow),
        pytest.param(Roundings(PRODUCTS, SCORES, WEIGHTS), id="all"),
    ],
)
def test_codes_are_those_of_float64(target: CpuTarget, roundings: Roundings) -> None:
    check(target, Weighting(0.25, roundings=roundings), (1, 7, 33, 132, 133, 700))


@best_target_first
def test_masks_are_added_between_roundings(target: CpuTarget) -> None:
    mask = np.where(np.random.default_rng(1).random((2, 1, 150, 150)) < 0.3, -np.inf, 0.0).astype(np.float32)
    mask[0, 0, 3] = -np.inf  # all keys are hidden
    for scores in ((), SCORES):
        roundings = Roundings(PRODUCTS, scores, WEIGHTS)
        check(target, Weighting(0.25, nan_as_zero=True, roundings=roundings), (8, 150), mask)


@best_target_first
def test_a_weight_that_is_no_number_has_the_least_code(target: CpuTarget) -> None:
    mask = np.full((2, 1, 4, 4), -np.inf, np.float32)
    weights = (ActivationAttr("quantize", (STEP, 3.0)),)
    check(target, Weighting(0.25, roundings=Roundings(weights=weights)), (4,), mask)


@best_target_first
def test_later_keys_are_hidden_behind_rounded_products(target: CpuTarget) -> None:
    check(target, Weighting(0.25, causal=True, roundings=Roundings(PRODUCTS, (), WEIGHTS)), (5, 140))


@best_target_first
def test_several_roundings_follow_each_other(target: CpuTarget) -> None:
    products = (*PRODUCTS, ActivationAttr("quantize", (0.5, 100.0)))
    weights = (*WEIGHTS, ActivationAttr("quantize", (0.0625, 0.0)))
    check(target, Weighting(0.25, roundings=Roundings(products)), (33,))
    net = network(target, SIZES, Weighting(0.25, roundings=Roundings(weights=weights)))
    arrays = operands(2, 40, 40)
    (result,) = net.run(None, feeds(arrays))
    steps = result * 256  # products of multiples of 1/16 are multiples of 1/256
    assert np.abs(steps - np.rint(steps)).max() < 1e-3
