"""Reordered neurons leave every function as it is; what was found is written down, also for panels."""

import numpy as np
import pytest
from hypothesis import given, settings
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.utils.exceptions import PassFailedException

from redpebble.dialect.attributes.few_bits import FewBitsAttr
from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.provenance import ORDER
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.frontend.import_model import import_model
from redpebble.models.zoo import build
from redpebble.options import Options
from redpebble.passes.kernels.discover_structure import DiscoverStructure
from redpebble.passes.neuron_order.permute_neurons import PermuteNeurons
from redpebble.passes.neuron_order.reorder_neurons import ReorderNeurons
from redpebble.passes.simplify.sparsify import Sparsify
from redpebble.pipeline import passes_of
from redpebble.verification.feeds import inputs_for
from tests.passes.pass_texts import all_of, assert_same_function, parse, run
from tests.passes.random_networks import BATCHES, feeds_for, network, seeds
from tests.support.hidden_structure import blocks, chain_module, shuffled

ORDERS = ("auto", "cuthill-mckee", "spectral", "support", "counts", "dealt", "passes", "identity")


def order_of(module: ModuleOp) -> str:
    order = module.attributes[ORDER]
    assert isinstance(order, StringAttr)
    return order.data


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_a_random_module_computes_what_it_did(seed: int) -> None:
    module = run(network(seed), Sparsify(densify=False))
    for one in (ReorderNeurons(seconds=0.0005), ReorderNeurons(order="dealt", batch=(1,))):
        after = run(module, one)
        assert_same_function(module, after, [feeds_for(module, batch, seed) for batch in BATCHES])


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["digits", "resmlp(depth=2, width=32)", "radixnet(layers=3)", "bert_layer"])
def test_a_model_of_the_zoo_computes_what_it_did(spec: str) -> None:
    model = build(spec)
    module = run(import_model(model, foreign="refuse").module, *passes_of(Options(), until="simplify"))
    after = run(module, ReorderNeurons(seconds=0.01, batch=(1,)))
    feeds = inputs_for(model, 3, np.random.default_rng(0))
    for expected, actual in zip(interpret(module, feeds), interpret(after, feeds), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_neurons_of_weights_of_few_bits_stay_as_groups_of_inputs_share_scales() -> None:
    rng = np.random.default_rng(0)
    module = chain_module(shuffled([blocks(512, 32, 8, rng) for _ in range(3)], rng), rng)
    (_, second, _) = all_of(module, SparseConstantOp)
    second.few_bits = few_bits = FewBitsAttr(4, 32, 4, np.ones(512 * 16, np.float32), np.zeros(0, np.int16))
    after = run(module, ReorderNeurons(batch=(64,)))
    # the neurons on both its sides stay, and those between the others are none
    assert all_of(after, SparseConstantOp)[1].few_bits == few_bits
    assert all(ORDER not in linear.attributes for linear in all_of(after, LinearOp))


def test_the_order_is_written_on_the_module_and_on_the_layers_that_it_changes() -> None:
    rng = np.random.default_rng(0)
    module = chain_module(shuffled([blocks(512, 32, 8, rng) for _ in range(3)], rng), rng)
    after = run(module, ReorderNeurons(batch=(64,)))
    found, _, tried = order_of(after).partition("; tried ")
    assert found.split("; ")[0] in ORDERS
    assert {word.split()[0] for word in tried.split(", ")} >= {"cuthill-mckee", "spectral", "support"}
    layers = [op for op in after.walk() if isinstance(op, LinearOp)]
    assert all("us at 64" in str(layer.attributes[ORDER]) for layer in layers)
    assert run(module, ReorderNeurons(batch=(64,))).is_structurally_equivalent(after)


def test_nothing_is_written_on_a_random_network() -> None:
    rng = np.random.default_rng(0)
    module = chain_module([rng.random((128, 128)) < 0.2 for _ in range(3)], rng)
    assert run(module, ReorderNeurons()).is_structurally_equivalent(module)


def test_panels_follow_their_outputs() -> None:
    rng = np.random.default_rng(0)
    masks = [np.repeat(rng.random((96, 12)) < 0.2, 8, axis=1) for _ in range(3)]
    module = run(chain_module(shuffled(masks, rng), rng), DiscoverStructure())
    after = run(module, PermuteNeurons(seed=4))
    found = run(after, DiscoverStructure())
    for one, other in zip(*(all_of(each, SparseConstantOp) for each in (after, found)), strict=True):
        assert one.panels is not None
        assert other.panels is not None
        assert panels_of(one) == panels_of(other)


def panels_of(constant: SparseConstantOp) -> set[tuple[int, ...]]:
    assert constant.panels is not None
    return {tuple(panel) for _, some in constant.panels.panels for panel in some.tolist()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReorderNeurons(order="random"), "expected an order of auto, identity, cuthill-mckee, .*, got 'random'"),
        (ReorderNeurons(seconds=-1.0), r"expected a search of 0 seconds or more, got -1\.0"),
        (ReorderNeurons(batch=(0,)), r"expected one or more batches from 1 on, got \[0\]"),
        (ReorderNeurons(lanes=3), "expected 4, 8 or 16 lanes, got 3"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: ReorderNeurons, message: str) -> None:
    module = parse("func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> { func.return %x : tensor<?x1xf32> }")
    with pytest.raises(PassFailedException, match=f"pebble-reorder-neurons: {message}"):
        run(module, options)
