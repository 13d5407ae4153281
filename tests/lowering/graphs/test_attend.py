from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.graphs import AtTargets, AttendEdgesOp, EdgeSoftmax
from redpebble.dialect.tensors import f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.graphs.attend import head_blocks
from redpebble.runtime.network import Network
from redpebble.sparse.csr import CscMatrix
from redpebble.sparse.edges import EdgeList
from tests.support.lowering_modules import Floats, best_target_first, function, native

NODES = 21
LEAKY = ActivationAttr("leaky_relu", (0.2,))


@cache
def graph(edges: int = 90) -> CscMatrix:
    """Edges of which some are there twice, and nodes of which some have none."""
    rng = np.random.default_rng(4)
    sources, targets = rng.integers(0, NODES - 3, (2, edges))
    return EdgeList(sources, targets).matrix((NODES, NODES))


@cache
def network(target: CpuTarget, shape: tuple[int, int], *, whole: bool = False) -> Network:
    heads, size = shape

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constant = SparseConstantOp(graph())
        block.add_op(constant)
        after = AtTargets()
        if whole:
            bias = ConstantOp(np.arange(heads * size, dtype=np.float32))
            block.add_op(bias)
            after = AtTargets(bias.result, ActivationAttr("relu"))
        softmax = EdgeSoftmax(heads, LEAKY, 1e-16 if whole else 0.0, from_zero=whole)
        op = AttendEdgesOp(arguments[0], arguments[1], constant.result, softmax, after)
        block.add_op(op)
        return op.results

    return native(function([f32_tensor((NODES, heads * size)), f32_tensor((NODES, 2 * heads))], body), target, 2)


def expected(x: Floats, scores: Floats) -> NDArray[np.float64]:
    """Return what a loop over nodes, edges and heads says."""
    heads = scores.shape[1] // 2
    own = x.astype(np.float64).reshape(NODES, heads, -1)
    result = np.zeros_like(own)
    edges = graph()
    for node in range(NODES):
        sources = edges.pattern.of(node)
        counts = edges.values[edges.pointers[node] : edges.pointers[node + 1]].astype(np.float64)
        for head in range(heads if len(sources) else 0):
            score = scores[sources, head].astype(np.float64) + scores[node, heads + head]
            powers = counts * np.exp(np.maximum(score, 0.2 * score))
            result[node, head] = powers @ own[sources, head] / powers.sum()
    return result.reshape(x.shape)


def feeds(heads: int, size: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(heads)
    x, scores = (rng.standard_normal((NODES, width), np.float32) for width in (heads * size, 2 * heads))
    return x, 3 * scores


@best_target_first
@pytest.mark.parametrize("shape", [(1, 7), (2, 16), (3, 5), (8, 8), (20, 1), (17, 13)])
def test_means_are_weighted_by_the_softmax_of_each_head(target: CpuTarget, shape: tuple[int, int]) -> None:
    x, scores = feeds(*shape)
    (y,) = network(target, shape).run(None, {"x0": x, "x1": scores})
    np.testing.assert_allclose(y, expected(x, scores), rtol=1e-4, atol=1e-5)


@best_target_first
def test_bias_and_activation_come_behind_means(target: CpuTarget) -> None:
    x, scores = feeds(4, 9)
    (y,) = network(target, (4, 9), whole=True).run(None, {"x0": x, "x1": scores})
    np.testing.assert_allclose(y, np.maximum(expected(x, scores) + np.arange(36), 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_blocks_cover_each_feature_once_and_hold_their_heads(lanes: int) -> None:
    for heads, size in ((1, 1), (3, 5), (8, 8), (17, 3), (4, 100)):
        blocks = head_blocks(heads * size, heads, lanes)
        covered: list[int] = []
        for block in blocks:
            for piece in block.pieces:
                features = range(piece.first, piece.first + piece.width)
                covered += features
                held = range(block.first, block.first + block.vectors * block.width)
                assert {feature // size for feature in features} <= set(held)
        assert covered == list(range(heads * size))
