"""Predicted over measured times of sums over edges: `python -m redpebble.bench.edge_sums_bench [--graph power_law]`.

Sums of 16 to 256 features, alone, on one thread, over graphs of 1000 to 100 000 nodes: what the prices in
`kernels/graphs/aggregate_cost.py` are fitted to, and what the order of products is chosen by.
"""

from pathlib import Path
from typing import Annotated, Final

import numpy as np
import onnx
import typer

import redpebble

from ..kernels.graphs.aggregate_cost import GraphWork, aggregate_us
from ..models.graph_network import GraphNetwork
from ..runtime.jit import host_target
from ..tuning.machines import machine_for
from ..verification.measuring import Budget, interleave
from .results.page_tables import PageTable, Write
from .suites.graph_bench import DEGREE

SUMS: Final = """g = Gather <axis = 0> (x, s) m = Mul (g, w)
    y = ScatterND <reduction = "add"> (z, t, m)"""
PREDICTED: Final = PageTable(
    "sums over edges", ("nodes", "edges", "features", "measured us", "predicted", "ratio"), Path("docs/graphs.md")
)


def sums_over(network: GraphNetwork, features: int) -> tuple[onnx.ModelProto, GraphWork]:
    """Return a model of sums over the edges of a graph and nothing else, and its work."""
    sources, targets = network.edges(np.random.default_rng(0))
    # an edge that is there twice is one of another weight
    edges = len(np.unique(sources * network.nodes + targets))
    size = f"[{network.nodes}, {features}]"
    graph = onnx.parser.parse_graph(f"sums (float{size} x) => (float{size} y) {{ {SUMS} }}")
    weights = np.random.default_rng(1).random((len(sources), 1), np.float32)
    zeros = np.zeros((network.nodes, features), np.float32)
    arrays = {"s": sources, "t": targets.reshape(-1, 1), "w": weights, "z": zeros}
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    return model, GraphWork(network.nodes, network.nodes, edges, features)


def main(
    graph: Annotated[str, typer.Option(help="Kind of graph.")] = "power_law",
    nodes: Annotated[str, typer.Option(help="Numbers of nodes.")] = "1000,10000,100000",
    features: Annotated[str, typer.Option(help="Numbers of features.")] = "16,64,256",
    degree: Annotated[float, typer.Option(help="Edges of a node, about.")] = DEGREE,
    seconds: Annotated[float, typer.Option(help="Time to measure each case.")] = 1.0,
    *,
    write: Write = False,
) -> None:
    """Print a line for each case, fastest rounds in microseconds."""
    machine = machine_for(host_target(), None)
    with PREDICTED.rows(write=write) as add:
        for count in map(int, nodes.split(",")):
            for width in map(int, features.split(",")):
                model, work = sums_over(GraphNetwork("gcn", graph, count, degree), width)
                network = redpebble.compile(model, threads=1)
                x = np.random.default_rng(2).standard_normal((count, width), dtype=np.float32)
                timing = interleave({"sums": lambda network=network, x=x: network.run(None, {"x": x})}, Budget(seconds))
                measured, predicted = timing["sums"].min_us, aggregate_us(work, machine)
                add(count, work.edges, width, f"{measured:.0f}", f"{predicted:.0f}", f"{predicted / measured:.2f}")


if __name__ == "__main__":
    typer.run(main)
