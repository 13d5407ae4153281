"""Sums that the derivative of an attention over edges is made of are those in float64 up to rounding."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.dialect.ops.graphs import EdgeSoftmax
from redpebble.dialect.ops.movement import ConcatOp
from redpebble.dialect.ops.training.edge_slopes import EdgeSlopesOp, EdgeTotalsOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.tensors import f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.network import Network
from redpebble.sparse.csr import CscMatrix
from redpebble.sparse.edges import EdgeList
from tests.support.lowering_modules import best_target_first, function, native

NODES = 29
LEAKY = ActivationAttr("leaky_relu", (0.2,))

SHAPES = (
    (1, 1, EdgeSoftmax(1, LEAKY)),
    (3, 5, EdgeSoftmax(3, LEAKY, 1e-16)),
    (8, 8, EdgeSoftmax(8, LEAKY, 0.5, True)),
    (5, 33, EdgeSoftmax(5)),
    (17, 3, EdgeSoftmax(17, LEAKY)),
    (130, 1, EdgeSoftmax(130, LEAKY)),
)
"""Heads, features of a head, and the softmax."""


@cache
def graph(edges: int) -> CscMatrix:
    """Edges of which some are there twice; some nodes have none."""
    rng = np.random.default_rng(edges)
    sources, targets = rng.integers(0, NODES - 3, (2, edges))
    weights = rng.integers(1, 3, edges).astype(np.float32)
    return EdgeList(sources, targets, weights).matrix((NODES, NODES))


def module(shape: tuple[int, int, EdgeSoftmax], edges: int) -> ModuleOp:
    """x, scores, d -> totals, sums at targets, and sums at sources."""
    heads, size, softmax = shape

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        x, scores, factors = arguments
        constant, turned = SparseConstantOp(graph(edges)), SparseConstantOp(graph(edges).transposed())
        totals = EdgeTotalsOp(scores, constant.result, softmax)
        at_targets = EdgeSlopesOp(x, scores, totals.result, constant.result, softmax, sources=False)
        both = ConcatOp([totals.result, factors], 1)
        at_sources = EdgeSlopesOp(x, scores, both.result, turned.result, softmax, sources=True)
        block.add_ops([constant, turned, totals, at_targets, both, at_sources])
        return [totals.result, at_targets.result, at_sources.result]

    tensors = [f32_tensor([NODES, width]) for width in (heads * size, 2 * heads, heads)]
    return function(tensors, body)


@cache
def network(target: CpuTarget, shape: tuple[int, int, EdgeSoftmax], edges: int) -> Network:
    return native(module(shape, edges), target, threads=2)


@best_target_first
@pytest.mark.parametrize("edges", [90, 0])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_those_in_float64(target: CpuTarget, shape: tuple[int, int, EdgeSoftmax], edges: int) -> None:
    rng, (heads, size, _) = np.random.default_rng(1), shape
    widths = {"x0": heads * size, "x1": 2 * heads, "x2": heads}
    feeds = {name: rng.standard_normal((NODES, width), dtype=np.float32) for name, width in widths.items()}
    expected = interpret(module(shape, edges), {name: value.astype(np.float64) for name, value in feeds.items()})
    for threads in (1, 2):
        found = network(target, shape, edges).run(None, feeds, threads=threads)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@best_target_first
def test_not_numbers_reach_the_neighbours_alone(target: CpuTarget) -> None:
    shape = SHAPES[1]
    rng, (heads, size, _) = np.random.default_rng(1), shape
    x, scores, factors = (
        rng.standard_normal((NODES, width), dtype=np.float32) for width in (heads * size, 2 * heads, heads)
    )
    x[4] = np.nan
    _, at_targets, at_sources = network(target, shape, 90).run(None, {"x0": x, "x1": scores, "x2": factors}, threads=1)
    edges = graph(90).to_dense() != 0
    for found, are_near in ((at_targets, edges[4]), (at_sources, edges[:, 4])):
        assert np.array_equal(np.isnan(found[:, : 2 * heads * size]).all(axis=1), are_near)
        assert np.isnan(found).any(axis=1).sum() == are_near.sum()
