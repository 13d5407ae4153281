"""The benchmark of graph networks: a GCN layer against onnxruntime as exported, and scipy in the better order.

`python -m redpebble.bench.suites.graph_bench [--nodes N] [--widths F:G,F:G] [--attention F:G] [--seconds S]`
prints a line for each pair of widths: times on one thread, on two, and of both orders of the products. All engines run
in turn, in one process. numpy and scipy multiply on one thread, as "one" does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import typer
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

import redpebble

from ...models.graph_network import SLOPE, GraphNetwork
from ...verification.measuring import Budget, Call, interleave
from ..results.page_tables import PageTable, Write, ratio_text

WIDTHS: Final = "16:16,128:16,16:128,128:128,64:256"
GRAPHS: Final = PageTable("graph networks", ("layer", "ours ms", "onnxruntime", "scipy", "two threads", "better order"))
"""Our speed over others', over ours on one thread, and over the better one of both orders of the products."""

DEGREE: Final = 13.4
SUMS_OF_CALL: Final = """g = Gather <axis = 0> (x, s) m = Mul (w, g) u = Unsqueeze (t, one) of = Shape (m)
    i = Expand (u, of) xs = Shape (x) z = ConstantOfShape (xs)
    y = ScatterElements <axis = 0, reduction = "add"> (z, i, m)"""
SUMS_FIRST: Final = """g = Gather <axis = 0> (x, s) m = Mul (g, w) a = ScatterND <reduction = "add"> (z, t, m)
    p = MatMul (a, weight) y = Add (p, bias)"""
SKIPPED: Final = "pebble-associate"


@dataclass(frozen=True)
class GraphCase:
    """A GCN layer on a power law graph."""

    nodes: int
    inputs: int
    outputs: int

    @property
    def network(self) -> GraphNetwork:
        return GraphNetwork("gcn", "power_law", self.nodes, DEGREE, (self.inputs, self.outputs))


def engines(case: GraphCase, *, with_onnxruntime: bool) -> dict[str, Call]:
    """Return a call of each engine; all give the same result, which is checked."""
    model = case.network.build(np.random.default_rng(0))
    constants = {
        name: value.const_value.numpy() for name, value in model.graph.initializers.items() if value.const_value
    }
    proto = onnx_ir.to_proto(model)
    x = np.random.default_rng(1).standard_normal((case.nodes, case.inputs), dtype=np.float32)
    ends = (constants["layers.0.targets"].reshape(-1), constants["layers.0.sources"])
    matrix = csr_array((constants["layers.0.weights"].reshape(-1), ends), shape=(case.nodes, case.nodes))
    weight, bias = constants["layers.0.weight"], constants["layers.0.bias"]
    one, two = redpebble.compile(proto, threads=1), redpebble.compile(proto, threads=2)
    forced = {
        "A (X W)": redpebble.compile(proto, threads=1, skip_passes=(SKIPPED,)),  # as it was exported
        "(A X) W": redpebble.compile(_sums_first(case, constants), threads=1, skip_passes=(SKIPPED,)),
    }
    calls: dict[str, Call] = {
        "one": lambda: one.run(None, {"x": x}),
        "two": lambda: two.run(None, {"x": x}),
        "A (X W)": lambda: forced["A (X W)"].run(None, {"x": x}),
        "(A X) W": lambda: forced["(A X) W"].run(None, {"x": x}),
        "scipy A (X W)": lambda: matrix @ (x @ weight) + bias,
        "scipy (A X) W": lambda: (matrix @ x) @ weight + bias,
    }
    if with_onnxruntime:
        calls["onnxruntime"] = _by_onnxruntime(proto, {"x": x})
    for network in (one, *forced.values()):
        _check(network.run(None, {"x": x})[0], np.asarray(calls["scipy A (X W)"]()))
    return calls


def _sums_first(case: GraphCase, constants: Mapping[str, NDArray[np.generic]]) -> onnx.ModelProto:
    """Return the layer with its products in the order that is not exported."""
    ports = f"(float[{case.nodes}, {case.inputs}] x) => (float[{case.nodes}, {case.outputs}] y)"
    graph = onnx.parser.parse_graph(f"layer {ports} {{ {SUMS_FIRST} }}")
    arrays = {name: constants[f"layers.0.{name}"] for name in ("weight", "bias")} | {
        "s": constants["layers.0.sources"],
        "t": constants["layers.0.targets"].reshape(-1, 1),
        "w": constants["layers.0.weights"].reshape(-1, 1),
        "z": np.zeros((case.nodes, case.inputs), np.float32),
    }
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


def attention_engines(case: GraphCase, *, with_onnxruntime: bool) -> dict[str, Call]:
    """Return a call of each engine for a layer of attention over edges with 8 heads; all results are checked."""
    network = GraphNetwork("gat", "power_law", case.nodes, DEGREE, (case.inputs, case.outputs))
    model = network.build(np.random.default_rng(0))
    constants = {
        name: value.const_value.numpy() for name, value in model.graph.initializers.items() if value.const_value
    }
    weight, bias, origin, target = (constants[f"layers.0.{name}"] for name in ("weight", "bias", "source", "target"))
    ends = np.concatenate((network.edges(np.random.default_rng(0)), np.tile(np.arange(case.nodes), (2, 1))), axis=1)
    sources, targets = ends[:, np.argsort(ends[1], kind="stable")]
    pointers = np.append(0, np.cumsum(np.bincount(targets, minlength=case.nodes)))
    x = np.random.default_rng(1).standard_normal((case.nodes, case.inputs), dtype=np.float32)

    def by_hand() -> NDArray[np.float32]:
        view = (x @ weight).reshape(case.nodes, origin.shape[1], -1)
        logits: NDArray[np.float32] = (view * origin).sum(-1)[sources] + (view * target).sum(-1)[targets]
        logits = np.where(logits < 0, np.float32(SLOPE) * logits, logits)
        powers = np.exp(logits - np.maximum.reduceat(logits, pointers[:-1])[targets])
        shares = powers / np.add.reduceat(powers, pointers[:-1])[targets]
        heads = [
            csr_array((shares[:, head], sources, pointers), shape=(case.nodes, case.nodes)) @ view[:, head]
            for head in range(view.shape[1])
        ]
        return np.concatenate(heads, axis=1) + bias

    proto = onnx_ir.to_proto(model)
    one, two = (redpebble.compile(proto, threads=threads) for threads in (1, 2))
    calls: dict[str, Call] = {
        "one": lambda: one.run(None, {"x": x}),
        "two": lambda: two.run(None, {"x": x}),
        "numpy and scipy": by_hand,
    }
    if with_onnxruntime:
        calls["onnxruntime"] = _by_onnxruntime(proto, {"x": x})
    _check(one.run(None, {"x": x})[0], by_hand())
    return calls


def call_engines(case: GraphCase, *, with_onnxruntime: bool) -> dict[str, Call]:
    """Return a call of each engine for sums over edges that the call brings, unsorted; all results are checked."""
    nodes, features = case.nodes, case.inputs
    s, t = case.network.edges(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((nodes, features), (len(s), 1)))
    w /= DEGREE  # sums of floats, whatever their order, stay near each other
    ports = f"(float[n, {features}] x, int64[e] s, int64[e] t, float[e, 1] w) => (float[n, {features}] y)"
    graph = onnx.parser.parse_graph(f"sums {ports} {{ {SUMS_OF_CALL} }}")
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    feeds = {"x": x, "s": s, "t": t, "w": w}
    one, two = (redpebble.compile(proto, threads=threads) for threads in (1, 2))

    def by_scipy() -> NDArray[np.float32]:
        return csr_array((w[:, 0], (t, s)), shape=(nodes, nodes)) @ x

    calls: dict[str, Call] = {
        "one": lambda: one.run(None, feeds),
        "two": lambda: two.run(None, feeds),
        "scipy": by_scipy,
    }
    if with_onnxruntime:
        calls["onnxruntime"] = _by_onnxruntime(proto, feeds)
    _check(one.run(None, feeds)[0], by_scipy())
    return calls


def _by_onnxruntime(proto: onnx.ModelProto, feeds: Mapping[str, NDArray[np.generic]]) -> Call:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def _check(result: NDArray[np.float32], wanted: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def main(
    nodes: Annotated[int, typer.Option(help="Nodes of the graph.")] = 20_000,
    widths: Annotated[str, typer.Option(metavar="F:G,F:G", help="Features before and behind a layer.")] = WIDTHS,
    seconds: Annotated[float, typer.Option(help="Measuring time of each pair of widths.")] = 2.0,
    attention: Annotated[str, typer.Option(metavar="F:G", help="Features of a layer of attention.")] = "64:64",
    of_call: Annotated[int, typer.Option(help="Features of sums over edges that are an input.")] = 64,
    *,
    without_onnxruntime: Annotated[bool, typer.Option(help="onnxruntime takes 8 bytes an edge and feature.")] = False,
    write: Write = False,
) -> None:
    """Print a line for each pair of widths, fastest rounds in milliseconds."""
    with GRAPHS.rows(write=write) as add:
        for word in widths.split(","):
            inputs, outputs = (int(number) for number in word.split(":"))
            calls = engines(GraphCase(nodes, inputs, outputs), with_onnxruntime=not without_onnxruntime)
            times = _times(calls, seconds)
            better = min(times["A (X W)"], times["(A X) W"]) / times["one"]
            add(*_cells(f"{inputs} -> {outputs}", times, ("scipy A (X W)", "scipy (A X) W")), f"{better:.2f}x")
        for title, engines_of, word in (
            ("attention, {} -> {}, 8 heads", attention_engines, attention),
            ("edges as an input, {}", call_engines, f"{of_call}:{of_call}" if of_call else ""),
        ):
            if word:
                inputs, outputs = (int(number) for number in word.split(":"))
                calls = engines_of(GraphCase(nodes, inputs, outputs), with_onnxruntime=not without_onnxruntime)
                peers = [name for name in calls if name not in ("one", "two", "onnxruntime")]
                add(*_cells(title.format(inputs, outputs), _times(calls, seconds), peers), "")


def _cells(case: str, times: Mapping[str, float], peers: Sequence[str]) -> tuple[str, ...]:
    """Return our time, and how often it goes into onnxruntime's and into that of the fastest peer."""
    others = times.get("onnxruntime", 0.0), min(times[name] for name in peers)
    ratios = (ratio_text(other / times["one"]) if other else "" for other in others)
    return case, f"{times['one']:.1f}", *ratios, ratio_text(times["one"] / times["two"])


def _times(calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """Return the milliseconds of the fastest call of each engine."""
    with threadpool_limits(1, "blas"):
        timed = interleave(calls, Budget(seconds, 3))
    return {name: timing.min_us / 1000 for name, timing in timed.items()}


if __name__ == "__main__":
    typer.run(main)
