"""The step of a decoder: keys and values of the past stand before its own ones."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.attention import Heads, PastAttentionOp, Roundings, Weighting
from redpebble.dialect.tensors import DYNAMIC, F32Tensor, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.network import Network
from tests.lowering.attention.test_attention import expected, operands
from tests.support.lowering_modules import HERE, Floats, best_target_first, function, native

SIZES = (4, 2, 8, 12)
LENGTHS = ((1, 0), (1, 1), (1, 127), (5, 7), (33, 140), (70, 3), (290, 5))
"""Own keys, and those of the past."""


@cache
def network(target: CpuTarget, weighting: Weighting, threads: int = 1) -> Network:
    heads, key_heads, key_size, value_size = SIZES
    types: list[F32Tensor] = [
        f32_tensor((DYNAMIC, DYNAMIC, heads * key_size)),
        f32_tensor((DYNAMIC, DYNAMIC, key_heads * key_size)),
        f32_tensor((DYNAMIC, DYNAMIC, key_heads * value_size)),
        f32_tensor((DYNAMIC, 1, DYNAMIC, DYNAMIC)),
        f32_tensor((DYNAMIC, key_heads, DYNAMIC, key_size)),
        f32_tensor((DYNAMIC, key_heads, DYNAMIC, value_size)),
    ]

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        q, k, v, mask, *past = arguments
        op = PastAttentionOp((q, k, v), mask, Heads(heads, key_heads), weighting, past)
        block.add_op(op)
        return op.results

    # axes by letters: batch, queries, keys, heads, features, mask, past
    return native(function(types, body, ("bqf", "bkf", "bkf", "bhqm", "bhpf", "bhpf")), target, threads)


class Step(NamedTuple):
    """Operands of a step, and what it yields in double precision."""

    feeds: dict[str, Floats]
    result: Floats


def step(weighting: Weighting, samples: int, own: int, past: int, hidden: bool = False) -> Step:
    q, k, v = operands(SIZES, samples, own, own + past)
    rng = np.random.default_rng(own)
    mask = np.where(rng.random((samples, 1, own, own + past)) < 0.3, np.float32(-np.inf), np.float32(0.5))
    mask[..., 0] = -np.inf if hidden else 0.0
    mask[:, :, 0] = -np.inf if hidden else 0.0
    heads = [x[:, :past].reshape(samples, past, SIZES[1], x.shape[2] // SIZES[1]).swapaxes(1, 2) for x in (k, v)]
    arrays = [q, k[:, past:], v[:, past:], mask, *heads]
    feeds = {f"x{index}": np.ascontiguousarray(array, dtype=np.float32) for index, array in enumerate(arrays)}
    return Step(feeds, expected(SIZES, weighting, [q, k, v], mask.astype(np.float32)))


@best_target_first
def test_a_mask_may_have_one_entry_for_all_keys(target: CpuTarget) -> None:
    weighting = Weighting(0.4)
    case, rng = step(weighting, 2, 5, 140), np.random.default_rng(0)
    mask = np.where(rng.random((2, 1, 5, 1)) < 0.3, np.float32(-np.inf), np.float32(0.5))
    q, k, v = operands(SIZES, 2, 5, 145)
    (result,) = network(target, weighting).run(None, {**case.feeds, "x3": mask})
    np.testing.assert_allclose(result, expected(SIZES, weighting, [q, k, v], mask), rtol=2e-5, atol=3e-6)


@best_target_first
def test_it_is_attention_to_both_parts(target: CpuTarget) -> None:
    weighting = Weighting(0.4)
    net = network(target, weighting)
    for samples in (1, 3):
        for own, past in LENGTHS:
            case = step(weighting, samples, own, past)
            np.testing.assert_allclose(net.run(None, case.feeds)[0], case.result, rtol=2e-5, atol=3e-6)


@best_target_first
def test_a_causal_step_reads_all_of_the_past_and_its_own_keys_so_far(target: CpuTarget) -> None:
    for samples, own, past in ((2, 5, 7), (1, 70, 140), (3, 1, 4), (1, 290, 140)):
        case = step(Weighting(0.4), samples, own, past)
        q, k, v = operands(SIZES, samples, own, own + past)
        hidden = np.triu(np.full((own, own + past), -np.inf, np.float32), past + 1)
        result = network(target, Weighting(0.4, causal=True)).run(None, case.feeds)[0]
        mask = (case.feeds["x3"] + hidden).astype(np.float32)
        np.testing.assert_allclose(result, expected(SIZES, Weighting(0.4), [q, k, v], mask), rtol=2e-5, atol=3e-6)


@best_target_first
def test_a_query_without_keys_reads_infinite_values_of_both_parts(target: CpuTarget) -> None:
    weighting = Weighting(0.4, nan_as_zero=True)
    net = network(target, weighting)
    for place in (2, 5):
        case = step(weighting, 2, 5, 7, hidden=True)
        case.feeds[f"x{place}"][1, 1, 2] = np.inf
        result = net.run(None, case.feeds)[0]
        np.testing.assert_allclose(result[0], case.result[0], rtol=2e-5, atol=3e-6)
        assert np.isnan(result[1, 0]).any()


@best_target_first
def test_rounded_weights_are_those_of_both_parts(target: CpuTarget) -> None:
    step_of_weights = 0.004
    weights = (ActivationAttr("quantize", (step_of_weights, 0.0)),)
    weighting = Weighting(0.4, nan_as_zero=True, roundings=Roundings(weights=weights))
    net = network(target, weighting)
    for own, past in ((1, 3), (5, 140), (3, 700)):
        case = step(weighting, 2, own, past)
        difference = np.abs(net.run(None, case.feeds)[0] - case.result)
        # one weight may be next to a tie
        assert difference.max() < 1.01 * step_of_weights * max(np.abs(case.feeds[name]).max() for name in ("x2", "x5"))
        assert np.quantile(difference, 0.9) < 1e-5


@pytest.mark.slow
def test_threads_change_no_bit() -> None:
    target = next(iter(HERE.values()))
    case = step(Weighting(0.4), 3, 33, 140)
    one, two = (network(target, Weighting(0.4), count).run(None, case.feeds)[0] for count in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_a_mask_for_other_keys_is_refused() -> None:
    case = step(Weighting(0.4), 1, 5, 7)
    case.feeds["x3"] = case.feeds["x3"][..., :-1]
    with pytest.raises(ValueError, match=r"expected equal sizes or 1 for the former, got m = 11 and k \+ p = 12"):
        network(next(iter(HERE.values())), Weighting(0.4)).run(None, case.feeds)
