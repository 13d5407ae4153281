"""Every model of the zoo computes the same in onnxruntime, in our native code, and after `optimize` in onnxruntime."""

from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.models.sentence_encoders import SENTENCE_ENCODERS
from redpebble.models.zoo import RECIPES, build
from redpebble.verification.feeds import inputs_for
from redpebble.verification.oracle import Oracle
from tests.end_to_end.agreement import Float64, assert_close, largest_error
from tests.support.lowering_modules import HERE, best_target_first

BATCHES = (0, 1, 7, 17, 64)
FEED_SEEDS = (0, 1, 2)

SMALL = (
    "compact(widths=(16, 24, 16), density=0.3, memory=32)",
    "digits",
    "ffnn(depth=3, width=60, density=0.1)",
    "ffnn(depth=3, width=33, density=0.02, skip=True)",
    "ffnn(depth=2, width=20, density=1.0)",
    "masked_mlp(width=48)",
    "radixnet(layers=2)",
    "resmlp(depth=2, width=32)",
    "structured(width=64)",
    "structured(pattern='block16x1', width=64, shuffled=True)",
)
"""Quick to compile; together with AMPLIFYING and LARGE every recipe but those with tests of their own."""

AMPLIFYING = ("every_activation(width=16)",)
"""28 layers, each with a norm that amplifies what the one before rounded: float64 is the judge."""

LARGE = ("bert_ffn", "bert_layer")
"""Their widths are fixed."""

FULL_SIZE = ("compact", "every_activation", "ffnn", "masked_mlp", "radixnet(layers=12)", "resmlp", "structured")


@cache
def model_of(spec: str, seed: int = 0) -> ir.Model:
    return build(spec, seed=seed)


@cache
def oracle_of(spec: str, seed: int = 0) -> Oracle:
    return Oracle(model_of(spec, seed))


def all_feeds(spec: str, batches: tuple[int, ...] = BATCHES) -> list[tuple[str, dict[str, NDArray[Any]]]]:
    """Inputs for each batch and seed, with a label."""
    return [
        (f"batch {batch} seed {seed}", inputs_for(model_of(spec), batch, np.random.default_rng((seed, batch))))
        for batch in batches
        for seed in FEED_SEEDS
    ]


def assert_native_agrees(spec: str, target: CpuTarget | None = None, seed: int = 0) -> None:
    network = redpebble.compile(model_of(spec, seed), target=target, cache=False)
    for label, feeds in all_feeds(spec):
        assert_close(network.run(None, feeds), oracle_of(spec, seed).run(feeds), label)


def test_every_recipe_is_tested_here_or_by_itself() -> None:
    tested = {spec.partition("(")[0] for spec in (*SMALL, *AMPLIFYING, *LARGE)}
    by_itself = {
        "digits_cnn",
        "digits_int8",
        "graph_network",
        "minilm",
        "ppocr_70",
        "ppocr_80",
        "resnet18_80",
        "smollm2_50",
        *SENTENCE_ENCODERS,
    }
    assert {*RECIPES} - tested == by_itself


@pytest.mark.parametrize("spec", [*SMALL[:4], *(pytest.param(spec, marks=pytest.mark.slow) for spec in SMALL[4:])])
def test_native_code_agrees_with_onnxruntime(spec: str) -> None:
    assert_native_agrees(spec)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["ffnn(depth=3, width=60, density=0.1)", "masked_mlp(width=48)"])
def test_another_seed_of_the_model_agrees_too(spec: str) -> None:
    assert_native_agrees(spec, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [LARGE[0], pytest.param(LARGE[1], marks=pytest.mark.slow)])
def test_the_native_code_of_a_transformer_part_agrees_with_onnxruntime(spec: str) -> None:
    network = redpebble.compile(model_of(spec), cache=False)
    for batch in BATCHES:
        feeds = inputs_for(model_of(spec), batch, np.random.default_rng(batch))
        assert_close(network.run(None, feeds), oracle_of(spec).run(feeds), f"batch {batch}")


@pytest.mark.parametrize("spec", [*SMALL, *(pytest.param(spec, marks=pytest.mark.slow) for spec in LARGE)])
def test_the_portable_model_agrees_with_the_original(spec: str) -> None:
    portable = Oracle(redpebble.optimize(model_of(spec), target="portable").model)
    for label, feeds in all_feeds(spec, BATCHES if spec in SMALL else (0, 1, 7)):
        assert_close(portable.run(feeds), oracle_of(spec).run(feeds), label)


@pytest.mark.slow
@pytest.mark.parametrize("spec", AMPLIFYING)
def test_where_errors_amplify_ours_are_no_larger_than_a_few_times_those_of_onnxruntime(spec: str) -> None:
    network = redpebble.compile(model_of(spec), cache=False)
    portable = Oracle(redpebble.optimize(model_of(spec), target="portable").model)
    exactly = Float64(model_of(spec))
    errors: list[tuple[float, float, float]] = []
    for _, feeds in all_feeds(spec):
        exact = exactly.run(feeds)
        runs = oracle_of(spec).run(feeds), network.run(None, feeds), portable.run(feeds)
        theirs, ours, exported = (largest_error(run, exact) for run in runs)
        errors.append((theirs, ours, exported))
    theirs, ours, exported = np.max(errors, axis=0)
    assert 0 < ours <= 4 * theirs
    assert 0 < exported <= 4 * theirs


@best_target_first
@pytest.mark.parametrize(
    "spec", [SMALL[2], *(pytest.param(spec, marks=pytest.mark.slow) for spec in (SMALL[5], SMALL[7]))]
)
def test_code_for_any_target_agrees_with_onnxruntime(spec: str, target: CpuTarget) -> None:
    assert_native_agrees(spec, target)


@pytest.mark.slow
def test_two_threads_compute_the_same_bits_as_one() -> None:
    model = model_of("resmlp(depth=2, width=32)")
    one, two = (redpebble.compile(model, threads=threads, cache=False) for threads in (1, 2))
    for batch in (1, 64, 65, 200):
        feeds = inputs_for(model, batch, np.random.default_rng(batch))
        for alone, together in zip(one.run(None, feeds), two.run(None, feeds), strict=True):
            np.testing.assert_array_equal(alone, together)


@pytest.mark.slow
@pytest.mark.parametrize("target", [*HERE, "host"])
@pytest.mark.parametrize("spec", ["digits", *(spec for spec in FULL_SIZE if spec != "every_activation")])
def test_a_model_of_full_size_agrees_on_any_target(spec: str, target: str) -> None:
    for seed in range(3):
        assert_native_agrees(spec, HERE.get(target), seed)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["digits", *FULL_SIZE])
@pytest.mark.parametrize("seed", range(3))
def test_a_portable_model_of_full_size_agrees_with_the_original(spec: str, seed: int) -> None:
    portable = Oracle(redpebble.optimize(model_of(spec, seed), target="portable").model)
    for label, feeds in all_feeds(spec):
        assert_close(portable.run(feeds), oracle_of(spec, seed).run(feeds), label)
