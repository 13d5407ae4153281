from functools import cache
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from scipy.sparse import csr_array

import redpebble
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.network import Network
from tests.support.lowering_modules import HERE, Floats, best_target_first

SUM = """g = Gather <axis = 0> (x, s) m = Mul (w, g) u = Unsqueeze (t, one) of = Shape (m) i = Expand (u, of)
    xs = Shape (x) z = ConstantOfShape (xs) a = ScatterElements <axis = 0, reduction = "add"> (z, i, m)
    b = Add (a, bias) y = Relu (b)"""

MAXIMUM = """n = Identity (w) m = Gather <axis = 0> (x, s) u = Unsqueeze (t, one) of = Shape (m) i = Expand (u, of)
    xs = Shape (x) z = ConstantOfShape (xs) l = ConstantOfShape <value = float {-3.4028235e38}> (of)
    v = ScatterElements <axis = 0, reduction = "min"> (z, i, l)
    y = ScatterElements <axis = 0, reduction = "max"> (v, i, m)"""

BY_ROWS = """g = Gather <axis = 0> (x, s) m = Mul (w, g) u = Unsqueeze (t, one) xs = Shape (x) z = ConstantOfShape (xs)
    a = ScatterND <reduction = "add"> (z, u, m) b = Add (a, bias) y = Relu (b)"""

HEADS, SIZE = 3, 5
ATTENTION = """view = Reshape (x, heads) l = Mul (view, from) f = ReduceSum <keepdims = 0> (l, last) r = Mul (view, to)
    k = ReduceSum <keepdims = 0> (r, last) fs = Gather <axis = 0> (f, s) kt = Gather <axis = 0> (k, t)
    sum = Add (fs, kt) e = LeakyRelu <alpha = 0.2> (sum) u = Unsqueeze (t, one) of = Shape (e) i = Expand (u, of)
    nodes = Shape (f) low = ConstantOfShape <value = float[1] {-3.4028234663852886e38}> (nodes)
    top = ScatterElements <axis = 0, reduction = "max"> (low, i, e) tt = Gather <axis = 0> (top, t)
    d = Sub (e, tt) exp = Exp (d) p = Mul (w, exp) none = ConstantOfShape (nodes)
    total = ScatterElements <axis = 0, reduction = "add"> (none, i, p) tiny = Add (total, epsilon)
    q = Gather <axis = 0> (tiny, t) share = Div (p, q) g = Gather <axis = 0> (view, s) wide = Unsqueeze (share, last)
    m = Mul (wide, g) v = Unsqueeze (t, ones) mo = Shape (m) j = Expand (v, mo) vs = Shape (view)
    z = ConstantOfShape (vs) a = ScatterElements <axis = 0, reduction = "add"> (z, j, m) flat = Reshape (a, rows)
    b = Add (flat, bias) y = Relu (b)"""

Indices = NDArray[np.int64]


def model(features: int, nodes: str = SUM) -> onnx.ModelProto:
    of_edges, of_nodes = "int64[edges] s, int64[edges] t, float[edges, 1] w", f"float[nodes, {features}]"
    ports = f"({of_nodes} x, {of_edges}) => ({of_nodes} y)"
    graph = onnx.parser.parse_graph(f"g {ports} {{ {nodes} }}")
    bias = np.linspace(-1, 1, features, dtype=np.float32)
    constants: dict[str, NDArray[np.generic]] = {"one": np.array([1]), "bias": bias}
    if nodes == ATTENTION:
        first, last = np.random.default_rng(8).standard_normal((2, 1, HEADS, SIZE), np.float32)
        constants |= {"from": first, "to": last, "heads": np.array([0, HEADS, SIZE]), "rows": np.array([0, features])}
        constants |= {"last": np.array([-1]), "ones": np.array([1, 2]), "epsilon": np.array(1e-6, np.float32)}
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@cache
def network(target: CpuTarget, features: int, nodes: str = SUM, threads: int = 2) -> Network:
    return redpebble.compile(model(features, nodes), target=target, threads=threads, cache=False)


class Graph(NamedTuple):
    """What a call gets."""

    x: Floats
    s: Indices
    t: Indices
    w: Floats


def feeds(nodes: int, edges: int, features: int) -> Graph:
    """A graph of a seed: some nodes have no edges, some edges are there twice, some numbers count from the back."""
    rng = np.random.default_rng(nodes + edges)
    ends = rng.integers(-nodes, max(1, nodes - 2), (2, edges))
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((nodes, features), (edges, 1)))
    return Graph(x, ends[0], ends[1], w)


def sums(given: Graph) -> Floats:
    """Return what scipy has in float64."""
    x, count = given.x.astype(np.float64), len(given.x)
    a = csr_array((given.w[:, 0].astype(np.float64), (given.t % count, given.s % count)), shape=(count, count))
    product: NDArray[np.float64] = a @ x
    return np.maximum(product + np.linspace(-1, 1, x.shape[1], dtype=np.float32), 0).astype(np.float32)


@best_target_first
@pytest.mark.parametrize("features", [7, 40])
def test_sums_over_edges_of_a_call_are_a_sparse_product(target: CpuTarget, features: int) -> None:
    for nodes, edges in ((23, 90), (1, 4), (5, 0), (600, 3000)):
        given = feeds(nodes, edges, features)
        (y,) = network(target, features).run(None, given._asdict())
        np.testing.assert_allclose(y, sums(given), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:threads is 3")
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_that_share_a_sort_change_no_bit(threads: int) -> None:
    target = next(iter(HERE.values()))
    for nodes, edges in ((700, 40_001), (1, 30_000)):
        given = feeds(nodes, edges, 7)._asdict()
        (alone,), (together,) = (network(target, 7, SUM, count).run(None, given) for count in (1, threads))
        np.testing.assert_array_equal(together, alone)
    np.testing.assert_allclose(alone, sums(feeds(nodes, edges, 7)), rtol=1e-3, atol=1e-2)


def agrees_with_onnxruntime(target: CpuTarget, features: int, nodes: str, threads: int = 2) -> None:
    proto, found = model(features, nodes), network(target, features, nodes, threads)
    reference = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for count, edges in ((23, 90), (1, 4), (5, 0), (600, 3000)):
        given = feeds(count, edges, features)._replace(w=np.abs(feeds(count, edges, features).w))._asdict()
        np.testing.assert_allclose(found.run(None, given)[0], reference.run(None, given)[0], rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"expected indices of 23 nodes, -23 to 22, got 23$"):
        found.run(None, {**feeds(23, 2, features)._asdict(), "t": np.array([0, 23])})


def test_sums_by_rows_over_edges_of_a_call_agree_with_onnxruntime() -> None:
    agrees_with_onnxruntime(next(iter(HERE.values())), 7, BY_ROWS)


@best_target_first
def test_attention_over_edges_of_a_call_agrees_with_onnxruntime(target: CpuTarget) -> None:
    agrees_with_onnxruntime(target, HEADS * SIZE, ATTENTION)


@pytest.mark.slow
@best_target_first
def test_maxima_over_edges_of_a_call_are_the_largest_neighbours(target: CpuTarget) -> None:
    for nodes, edges in ((23, 30), (1, 4), (5, 0), (600, 900)):
        given = feeds(nodes, edges, 19)
        (y,) = network(target, 19, MAXIMUM).run(None, given._asdict())
        wanted = np.full((nodes, 19), -np.inf, np.float32)
        np.maximum.at(wanted, given.t, given.x[given.s])
        np.testing.assert_array_equal(y, np.where(np.isinf(wanted), 0, wanted))


def test_a_node_outside_is_refused_in_a_line() -> None:
    given = feeds(9, 20, 7)
    for wrong in (9, -10, 1 << 40):
        for end in ("s", "t"):
            ends = (given.s if end == "s" else given.t).copy()
            ends[3] = wrong
            with pytest.raises(ValueError, match=f"expected indices of 9 nodes, -9 to 8, got {wrong}$"):
                network(next(iter(HERE.values())), 7).run(None, {**given._asdict(), end: ends})
