from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.attention import AttentionOp, Heads, Weighting
from redpebble.dialect.tensors import DYNAMIC, F32Tensor, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.network import Network
from tests.support.lowering_modules import HERE, Floats, best_target_first, function, native

LENGTHS = (1, 7, 17, 33, 64, 197, 330)

Sizes = tuple[int, int, int, int]
"""Heads, heads of keys, features of a key, features of a value."""

SHARED_MASK = (DYNAMIC, 1)
"""Samples and heads of a mask that all heads share."""


@cache
def network(
    target: CpuTarget,
    sizes: Sizes,
    weighting: Weighting,
    mask_axes: tuple[int, int] | None = None,
    keys: int = DYNAMIC,
    threads: int = 1,
) -> Network:
    heads, key_heads, key_size, value_size = sizes
    types: list[F32Tensor] = [
        f32_tensor((DYNAMIC, DYNAMIC, heads * key_size)),
        f32_tensor((DYNAMIC, keys, key_heads * key_size)),
        f32_tensor((DYNAMIC, keys, key_heads * value_size)),
    ]
    if mask_axes is not None:
        types.append(f32_tensor((*mask_axes, DYNAMIC, DYNAMIC)))

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        q, k, v, *mask = arguments
        op = AttentionOp((q, k, v), mask[0] if mask else None, Heads(heads, key_heads), weighting)
        block.add_op(op)
        return op.results

    return native(function(types, body), target, threads)


def operands(sizes: Sizes, samples: int, queries: int, keys: int, seed: int = 0) -> list[Floats]:
    heads, key_heads, key_size, value_size = sizes
    rng = np.random.default_rng((seed, samples, queries, keys))
    shapes = ((queries, heads * key_size), (keys, key_heads * key_size), (keys, key_heads * value_size))
    return [rng.standard_normal((samples, *shape), dtype=np.float32) for shape in shapes]


def expected(sizes: Sizes, weighting: Weighting, arrays: Sequence[Floats], mask: Floats | None = None) -> Floats:
    heads, key_heads, *_ = sizes
    counts = (heads, key_heads, key_heads)
    split = zip(arrays, counts, strict=True)
    q, k, v = (x.astype(np.float64).reshape(*x.shape[:2], n, x.shape[2] // n) for x, n in split)
    k, v = (np.repeat(x, heads // key_heads, axis=2) for x in (k, v))
    products, behind_mask, behind_softmax = weighting.roundings
    scores = rounded(np.einsum("bshd,bthd->bhst", q, k) * weighting.scale, products)
    scores = rounded(scores if mask is None else scores + mask, behind_mask)
    if weighting.causal:
        scores = scores + np.triu(np.full(scores.shape[-2:], -np.inf), 1)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        weights /= weights.sum(axis=-1, keepdims=True)
        if weighting.nan_as_zero:
            weights[np.isnan(weights)] = 0.0
        result = np.einsum("bhst,bthe->bshe", rounded(weights, behind_softmax), v)
        return result.reshape(*q.shape[:2], heads * sizes[3]).astype(np.float32)


def rounded(x: NDArray[np.float64], roundings: Sequence[ActivationAttr]) -> NDArray[np.float64]:
    for one in roundings:
        scale, zero = one.values
        steps = np.where(np.isnan(x), -zero, np.rint(x / scale))  # a NaN has the least code
        x = np.clip(steps, -zero, 255 - zero) * scale
    return x


def feeds(arrays: Sequence[Floats], mask: Floats | None = None) -> dict[str, Floats]:
    given_arrays = [*arrays, *([] if mask is None else [mask])]
    return {f"x{index}": array for index, array in enumerate(given_arrays)}


def check(
    net: Network, sizes: Sizes, weighting: Weighting, arrays: Sequence[Floats], mask: Floats | None = None
) -> None:
    (result,) = net.run(None, feeds(arrays, mask))
    np.testing.assert_allclose(result, expected(sizes, weighting, arrays, mask), rtol=2e-5, atol=3e-6)


@best_target_first
def test_attention_agrees_with_float64(target: CpuTarget) -> None:
    sizes, weighting = (3, 3, 5, 13), Weighting(0.4)
    net = network(target, sizes, weighting)
    for samples, length in ((0, 5), (7, 1), (2, 7), (1, 17), (1, 33), (1, 64), (1, 197), (1, 330)):
        check(net, sizes, weighting, operands(sizes, samples, length, length))


@best_target_first
def test_masks_are_broadcast_over_samples_heads_and_queries(target: CpuTarget) -> None:
    sizes, weighting = (2, 2, 8, 8), Weighting(0.25)
    for axes in ((DYNAMIC, 1), (1, 2)):
        net = network(target, sizes, weighting, axes)
        for samples, length in ((2, 7), (1, 33), (3, 80), (1, 330)):
            arrays = operands(sizes, samples, length, length)
            for rows, keys in ((1, length), (length, length), (length, 1), (1, 1)):
                shape = (samples if axes[0] == DYNAMIC else 1, axes[1], rows, keys)
                mask = np.random.default_rng(rows).standard_normal(shape, dtype=np.float32)
                if keys == 1:
                    mask[mask > 1.0] = -np.inf  # all keys of these queries are hidden
                check(net, sizes, weighting, arrays, mask)


@best_target_first
def test_grouped_queries_share_keys(target: CpuTarget) -> None:
    sizes, weighting = (6, 2, 8, 4), Weighting(0.3)
    net = network(target, sizes, weighting)
    for length in (1, 20, 70):
        check(net, sizes, weighting, operands(sizes, 2, length, length))


@best_target_first
def test_causal_attention_reads_no_later_key(target: CpuTarget) -> None:
    sizes, weighting = (2, 2, 16, 16), Weighting(0.25, causal=True)
    net = network(target, sizes, weighting)
    for length in LENGTHS:
        arrays = operands(sizes, 2, length, length)
        check(net, sizes, weighting, arrays)
        changed = [array.copy() for array in arrays]
        for array in changed[1:]:
            array[:, length // 2 :] += 100.0
        before, after = (net.run(None, feeds(each))[0] for each in (arrays, changed))
        np.testing.assert_array_equal(before[:, : length // 2], after[:, : length // 2])


@pytest.mark.slow
@best_target_first
def test_queries_and_keys_may_differ_in_number(target: CpuTarget) -> None:
    sizes, weighting = (2, 2, 8, 12), Weighting(0.25)
    for keys in (1, 73, 150):
        net = network(target, sizes, weighting, keys=keys)
        for queries in (1, 40, 65):
            check(net, sizes, weighting, operands(sizes, 2, queries, keys))


@pytest.mark.slow
@best_target_first
@pytest.mark.parametrize("nan_as_zero", [False, True])
def test_a_query_whose_keys_are_all_masked_is_what_a_softmax_makes_of_it(target: CpuTarget, nan_as_zero: bool) -> None:
    sizes, weighting = (2, 2, 8, 8), Weighting(0.25, nan_as_zero=nan_as_zero)
    net = network(target, sizes, weighting, SHARED_MASK)
    for length in (5, 80, 200):
        arrays = operands(sizes, 2, length, length)
        mask = np.zeros((2, 1, length, length), dtype=np.float32)
        mask[0, 0, ::2] = -np.inf
        mask[:, :, 1, : length - 1] = -np.inf
        check(net, sizes, weighting, arrays, mask)
        mask[mask < 0] = np.finfo(np.float32).min
        check(net, sizes, weighting, arrays, mask)


@pytest.mark.slow
@best_target_first
@pytest.mark.parametrize("nan_as_zero", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_spread_as_in_a_softmax(target: CpuTarget, value: float, nan_as_zero: bool) -> None:
    sizes, weighting = (2, 2, 8, 8), Weighting(0.25, nan_as_zero=nan_as_zero)
    net = network(target, sizes, weighting)
    for place in range(3):
        arrays = operands(sizes, 2, 90, 90)
        arrays[place][1, 80, 3] = value
        with np.errstate(invalid="ignore"):
            check(net, sizes, weighting, arrays)


@settings(max_examples=60, deadline=None)
@given(
    samples=st.sampled_from([0, 1, 3]),
    length=st.integers(1, 150),
    sizes=st.sampled_from([(2, 2, 1, 9), (2, 2, 19, 17)]),
    masked=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_shape_agrees_with_float64(samples: int, length: int, sizes: Sizes, masked: bool, seed: int) -> None:
    weighting = Weighting(0.4)
    net = network(next(iter(HERE.values())), sizes, weighting, SHARED_MASK if masked else None)
    arrays, mask = operands(sizes, samples, length, length, seed), None
    if masked:
        hidden = np.random.default_rng(seed).random((samples, 1, 1, length)) < 0.5
        mask = np.where(hidden, np.float32(-np.inf), np.float32(0.0)).astype(np.float32)
        mask[..., 0] = 0.0
    check(net, sizes, weighting, arrays, mask)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_threads_change_no_bit(threads: int, causal: bool) -> None:
    sizes, weighting = (3, 3, 16, 16), Weighting(0.25, causal=causal)
    target = next(iter(HERE.values()))
    one, several = (network(target, sizes, weighting, threads=count) for count in (1, threads))
    for samples, length in ((1, 197), (5, 33), (2, 64), (9, 3), (1, 600)):
        arrays = operands(sizes, samples, length, length)
        np.testing.assert_array_equal(one.run(None, feeds(arrays))[0], several.run(None, feeds(arrays))[0])


def test_sizes_that_do_not_fit_are_refused_and_nothing_else_is_read() -> None:
    sizes, weighting = (2, 2, 8, 8), Weighting(0.25)
    net = network(next(iter(HERE.values())), sizes, weighting, (DYNAMIC, 1))
    arrays = operands(sizes, 3, 7, 7)
    with pytest.raises(ValueError, match="expected equal sizes or 1 for the former, got d3 = 6 and d1 = 7"):
        net.run(None, feeds(arrays, np.zeros((3, 1, 7, 6), np.float32)))
    for queries in (0, 2, 6, 8):
        with pytest.raises(ValueError, match="expected equal sizes or 1 for the former"):
            net.run(None, feeds(arrays, np.zeros((3, 1, queries, 7), np.float32)))
