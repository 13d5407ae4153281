"""No pass changes what a module computes, alone or after the others, for any batch size."""

import pytest
from hypothesis import given, settings
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.transforms.canonicalize import CanonicalizePass

from redpebble.dialect.ops.layers import BatchNormOp, LinearOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.passes.kernels.annotate_io_bounds import AnnotateIoBounds
from redpebble.passes.kernels.choose_kernels import ChooseKernels
from redpebble.passes.neuron_order.permute_neurons import PermuteNeurons
from redpebble.passes.simplify.drop_dead_units import DropDeadUnits
from redpebble.passes.simplify.fold_batch_norm import FoldBatchNorm
from redpebble.passes.simplify.fold_constants import FoldConstants
from redpebble.passes.simplify.fuse_layers import FuseLayers
from redpebble.passes.simplify.merge_equal_units import MergeEqualUnits
from redpebble.passes.simplify.recognize_layers import RecognizeLayers
from redpebble.passes.simplify.sparsify import Sparsify
from redpebble.passes.tiles.form_tiles import FormTiles
from tests.passes.pass_texts import all_of, assert_same_function, run
from tests.passes.random_networks import BATCHES, feeds_for, network, seeds

SINGLE: tuple[ModulePass, ...] = (
    RecognizeLayers(),
    FoldConstants(),
    FoldBatchNorm(),
    FoldBatchNorm(keep=True),
    FuseLayers(),
    DropDeadUnits(),
    MergeEqualUnits(),
    Sparsify(),
    Sparsify(densify=True),
    PermuteNeurons(seed=3),
    ChooseKernels(),
    AnnotateIoBounds(),
)

FINAL = tuple(one for one in SINGLE if not isinstance(one, PermuteNeurons))
"""Passes that a second run changes nothing after."""

PORTABLE: tuple[ModulePass, ...] = (
    CanonicalizePass(),
    RecognizeLayers(),
    FoldConstants(),
    FoldBatchNorm(),
    FuseLayers(),
    DropDeadUnits(),
    MergeEqualUnits(),
    Sparsify(),
)

COMPILED: tuple[ModulePass, ...] = (*PORTABLE, PermuteNeurons(), ChooseKernels(), FormTiles(), AnnotateIoBounds())


def check(module: ModuleOp, seed: int, *passes: ModulePass) -> ModuleOp:
    after = run(module, *passes)
    assert_same_function(module, after, [feeds_for(module, batch, seed) for batch in BATCHES])
    return after


@pytest.mark.parametrize("single", SINGLE, ids=lambda single: str(single.pipeline_pass_spec()))
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_a_pass_changes_no_function(single: ModulePass, seed: int) -> None:
    check(network(seed), seed, single)


@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_tiles_compute_what_their_ops_computed(seed: int) -> None:
    after = check(network(seed), seed, FoldConstants(), FoldBatchNorm(), FormTiles())
    assert not all_of(after, BatchNormOp)
    for linear in all_of(after, LinearOp):
        assert isinstance(linear.parent_op(), TileOp)


@settings(max_examples=50, deadline=None)
@given(seed=seeds)
def test_all_passes_together_change_no_function(seed: int) -> None:
    check(network(seed), seed, *COMPILED)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_nan_and_inf_in_constants_reach_the_same_results(seed: int) -> None:
    # the interpreter subtracts a batch norm's mean first; onnxruntime and we multiply out, and inf - inf is NaN
    check(run(network(seed, nonfinite=True), FoldBatchNorm()), seed, *COMPILED)


@pytest.mark.parametrize(
    "single",
    [one for one in SINGLE if not isinstance(one, PermuteNeurons)],
    ids=lambda single: str(single.pipeline_pass_spec()),
)
@settings(max_examples=6, deadline=None)
@given(seed=seeds)
def test_a_pass_is_done_after_one_run(single: ModulePass, seed: int) -> None:
    once = run(network(seed), single)
    assert run(once, single).is_structurally_equivalent(once)
