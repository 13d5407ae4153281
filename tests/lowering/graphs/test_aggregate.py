from collections.abc import Sequence
from functools import cache

import numpy as np
import onnx_ir
import pytest
from onnxruntime import InferenceSession
from xdsl.ir import Block, SSAValue

import redpebble
from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.graphs import AggregateOp, AtTargets
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.driver.native_build import native_build
from redpebble.lowering.code_key import code_key
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.graphs.aggregate import pieces_of
from redpebble.lowering.graphs.packing import block_borders
from redpebble.models.graph_network import GraphNetwork
from redpebble.options import Options
from redpebble.passes.neuron_order.order_targets import OrderTargets
from redpebble.runtime.network import Network
from redpebble.sparse.csr import CscMatrix
from redpebble.sparse.edges import EdgeList
from tests.support.lowering_modules import HERE, Floats, best_target_first, function, native

SIZES = (23, 19)


@cache
def graph(seed: int = 0, counts: tuple[int, int] = SIZES, edges: int = 90) -> CscMatrix:
    """Edges of which some are there twice, some lead nowhere else, and some nodes have none."""
    rng = np.random.default_rng(seed)
    sources, targets = (rng.integers(0, max(1, count - 3), edges) for count in counts)
    return EdgeList(sources, targets, rng.standard_normal(edges, dtype=np.float32)).matrix(counts)


@cache
def network(target: CpuTarget, features: int, *, whole: bool = False, maximum: bool = False) -> Network:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constant = SparseConstantOp(graph())
        block.add_op(constant)
        after = AtTargets()
        if whole:
            bias = ConstantOp(np.arange(features, dtype=np.float32) - features / 2)
            block.add_op(bias)
            after = AtTargets(bias.result, ActivationAttr("relu"))
        op = AggregateOp(arguments[0], constant.result, after, maximum=maximum)
        block.add_op(op)
        return op.results

    return native(function([f32_tensor((DYNAMIC, SIZES[0], features))], body), target, 2)


def values(features: int, samples: int) -> Floats:
    return np.random.default_rng(features).standard_normal((samples, SIZES[0], features), dtype=np.float32)


@best_target_first
@pytest.mark.parametrize("features", [1, 7, 16, 40])
def test_sums_are_those_of_a_dense_product(target: CpuTarget, features: int) -> None:
    for samples in (0, 1, 3):
        x = values(features, samples)
        (y,) = network(target, features).run(None, {"x0": x})
        wanted = graph().to_dense().T.astype(np.float64) @ x
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


@best_target_first
def test_bias_and_activation_come_behind(target: CpuTarget) -> None:
    x = values(20, 2)
    (y,) = network(target, 20, whole=True).run(None, {"x0": x})
    wanted = graph().to_dense().T.astype(np.float64) @ x + (np.arange(20) - 10)
    np.testing.assert_allclose(y, np.maximum(wanted, 0), rtol=1e-5, atol=1e-5)


@best_target_first
def test_a_maximum_is_that_of_the_sources_and_0_without_any(target: CpuTarget) -> None:
    x = values(20, 2)
    (y,) = network(target, 20, maximum=True).run(None, {"x0": x})
    for node in range(SIZES[1]):
        sources = graph().pattern.of(node)
        wanted = x[:, sources].max(axis=1) if len(sources) else np.zeros((2, 20), np.float32)
        np.testing.assert_array_equal(y[:, node], wanted)


def test_a_nan_stays_among_those_it_reaches() -> None:
    x = values(16, 1)
    x[0, 4, 3] = np.nan
    for maximum in (False, True):
        (y,) = network(next(iter(HERE.values())), 16, maximum=maximum).run(None, {"x0": x})
        reached = np.zeros((SIZES[1], 16), np.bool_)
        reached[graph().columns[graph().rows == 4], 3] = True
        np.testing.assert_array_equal(np.isnan(y[0]), reached)


def test_blocks_of_targets_have_about_equal_work_and_cover_all() -> None:
    degrees = np.maximum(1, 20_000 // np.arange(1, 3_001) ** 2)
    pointers = np.append(0, np.cumsum(degrees))
    edges = CscMatrix((3_000, 3_000), pointers, np.zeros(pointers[-1], np.int64), np.ones(pointers[-1], np.float32))
    borders = block_borders(edges)
    assert borders[0] == 0
    assert borders[-1] == 3_000
    assert (np.diff(borders) >= 0).all()
    work = np.diff((pointers + np.arange(3_001))[borders])
    assert work.max() <= degrees.max() + 8192


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_pieces_cover_each_feature_once(lanes: int) -> None:
    for features in (1, 3, 16, 37, 128, 700):
        pieces = [piece for group in pieces_of(features, lanes) for piece in group]
        covered = [feature for piece in pieces for feature in range(piece.first, piece.first + piece.width)]
        assert covered == list(range(features))


@pytest.mark.parametrize("kind", ["gin", pytest.param("gat", marks=pytest.mark.slow)])
def test_graphs_of_other_edge_counts_have_code_of_their_own(kind: str) -> None:
    x = values(1, 40).reshape(-1)[:900].reshape(900, 1)
    for degree in (22.0, 2.0, 22.0):
        proto = onnx_ir.to_proto(GraphNetwork(kind, "geometric", 900, degree, (1, 1)).build(np.random.default_rng(0)))
        (wanted,) = InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
        (y,) = redpebble.compile(proto, cache=False).run(None, {"x": x})
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)


def test_code_is_that_of_another_graph_only_with_as_many_blocks() -> None:
    models = [GraphNetwork("gin", "geometric", 900, degree, (1, 1)) for degree in (22.0, 2.0, 2.2)]
    modules = [native_build(onnx_ir.to_proto(one.build(np.random.default_rng(0))), Options()).module for one in models]
    first, second, third = map(code_key, modules)
    assert first != second
    assert second == third


@pytest.mark.parametrize("kind", ["gcn", pytest.param("gat", marks=pytest.mark.slow)])
def test_a_walk_through_targets_changes_no_bit(kind: str) -> None:
    proto = onnx_ir.to_proto(GraphNetwork(kind, "geometric", 9000, 6.0, (64, 64)).build(np.random.default_rng(0)))
    modules = [native_build(proto, Options(skip_passes=skipped)).module for skipped in ((), (OrderTargets.name,))]
    assert ["pebble.target_walk" in str(module) for module in modules] == [False, False]
    assert [" walk <near" in str(module) for module in modules] == [True, False]
    x = np.random.default_rng(1).standard_normal((9000, 64), dtype=np.float32)
    both = [redpebble.compile(proto, cache=False, threads=2, skip_passes=one) for one in ((), (OrderTargets.name,))]
    left, right = (network.run(None, {"x": x})[0] for network in both)
    np.testing.assert_array_equal(left, right)
