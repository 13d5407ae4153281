"""An epoch of training of a graph network beside torch_geometric's: `python -m redpebble.bench.graph_training_bench`.

Two layers on a power law graph learn by Adam and mean squares, all nodes in each step, on one thread, in one process.
torch_geometric gets its normalised edges once, as ours are constants, and what is faster of a list of edges and, for
GCN and GraphSAGE, a sparse matrix of torch's. Both begin with the same weights, and their losses are compared before
anything is timed. Needs torch_geometric: `pip install torch_geometric`.
"""

from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import onnx_ir
import typer
from numpy.typing import NDArray

from ..models.graph_network import SLOPE, GraphNetwork
from ..tools.benching.errors import PeerError
from ..training.native_step import NativeStep, StepOptions
from ..training.optimizers import Adam
from ..verification.measuring import Budget, interleave
from .results.page_tables import PageTable, Write
from .suites.graph_bench import DEGREE
from .training_bench import RATE

Floats = NDArray[np.float32]
Call = Callable[[], object]

NAMES: Final = {
    "gcn": {"lin.weight": "weight^T", "bias": "bias"},
    "sage": {"lin_l.weight": "near.weight", "lin_l.bias": "near.bias", "lin_r.weight": "own^T"},
    "gat": {"lin.weight": "weight^T", "att_src": "source", "att_dst": "target", "bias": "bias"},
}
"""Parameters of torch_geometric's layers, and what ours are called; ^T where they are transposed."""

EPOCHS: Final = PageTable(
    "epochs of graph networks",
    ("network", "ours ms", "torch_geometric, edges", "its sparse matrix", "times as fast"),
    Path("docs/graphs.md"),
)


def our_epoch(network: GraphNetwork, x: Floats, target: Floats, loss: list[float]) -> tuple[onnx_ir.Model, Call]:
    """Return the model, and our epoch: outputs and gradients, Adam, new values in packed weights; losses are added."""
    model = network.build(np.random.default_rng(0))
    step = NativeStep(model, StepOptions("mse", len(x)))
    feeds = {"x": x} | {one.name: one.sums(x) for one in step.cached}
    batch, adam = step.bind(feeds, target), Adam(len(step.values))

    def run() -> None:
        batch.run()
        adam.update(step.values, step.gradient, RATE, 1 / len(x))
        step.put()

    batch.run()
    loss.append(float(np.square(batch.outputs - target).mean()))
    return model, run


def their_epoch(
    network: GraphNetwork, model: onnx_ir.Model, x: Floats, target: Floats, loss: list[float], *, as_matrix: bool
) -> Call:
    """Return torch_geometric's epoch; the loss of its first weights is added.

    Raises:
        PeerError: torch_geometric is not installed.
    """
    try:
        torch: Any = import_module("torch")
        geometric: Any = import_module("torch_geometric")
    except ImportError:
        raise PeerError("torch_geometric is not installed: pip install torch_geometric") from None
    torch.set_num_threads(1)
    arrays = {name: value.const_value.numpy() for name, value in model.graph.initializers.items() if value.const_value}
    ends = network.edges(np.random.default_rng(0))
    if network.kind != "sage":
        ends = np.concatenate((ends, np.tile(np.arange(network.nodes), (2, 1))), axis=1)
    edges, kind = torch.tensor(ends), network.kind
    weights = torch.tensor(arrays["layers.0.weights"].reshape(-1)) if kind != "gat" else None
    if as_matrix:
        size = (network.nodes, network.nodes)
        edges = torch.sparse_coo_tensor(edges.flip(0), weights, size).coalesce().to_sparse_csr()
    layers = torch.nn.ModuleList()
    for number, (before, behind) in enumerate(pairwise(network.widths)):
        match kind:
            case "gcn":
                layer: Any = geometric.nn.GCNConv(before, behind, normalize=False, add_self_loops=False)
            case "sage":
                # the mean is in the weights of the matrix
                layer = geometric.nn.SAGEConv(before, behind, aggr="sum" if as_matrix else "mean")
            case _:
                options = {"negative_slope": SLOPE, "add_self_loops": False}
                layer = geometric.nn.GATConv(before, behind // network.heads, network.heads, **options)
        layers.append(layer)
        held = dict(layer.named_parameters())
        with torch.no_grad():
            for theirs, ours in NAMES[kind].items():
                array = arrays[f"layers.{number}.{ours.removesuffix('^T')}"]
                held[theirs].copy_(torch.tensor(np.ascontiguousarray(array.T if ours.endswith("^T") else array)))
    adam = torch.optim.Adam(layers.parameters(), RATE, fused=True)
    inputs, wanted = torch.from_numpy(x), torch.from_numpy(target)
    losses = list[float]()
    extra = (weights,) if kind == "gcn" and not as_matrix else ()

    def run() -> None:
        adam.zero_grad()
        value = inputs
        for number, layer in enumerate(layers):
            value = layer(value if number == 0 else torch.relu(value), edges, *extra)
        difference = ((value - wanted) ** 2).mean()
        difference.backward()
        adam.step()
        losses.append(float(difference.detach()))

    run()
    loss.append(losses[0])
    return run


def main(
    kinds: Annotated[str, typer.Option(help="Kinds of layers.")] = "gcn,sage,gat",
    nodes: Annotated[int, typer.Option(help="Nodes of the graph.")] = 20_000,
    widths: Annotated[str, typer.Option(help="Features before, between and behind both layers.")] = "64,64,16",
    seconds: Annotated[float, typer.Option(help="Time to measure each network.")] = 6.0,
    *,
    write: Write = False,
) -> None:
    """Print a line for each kind, medians in milliseconds."""
    rng, sizes = np.random.default_rng(1), tuple(map(int, widths.split(",")))
    x, target = (rng.standard_normal((nodes, width), dtype=np.float32) for width in (sizes[0], sizes[-1]))
    with EPOCHS.rows(write=write) as add:
        for kind in kinds.split(","):
            network, losses = GraphNetwork(kind, "power_law", nodes, DEGREE, sizes), list[float]()
            model, ours = our_epoch(network, x, target, losses)
            calls = {"ours": ours, "edges": their_epoch(network, model, x, target, losses, as_matrix=False)}
            if kind != "gat":
                calls["matrix"] = their_epoch(network, model, x, target, losses, as_matrix=True)
            np.testing.assert_allclose(losses, losses[0], rtol=1e-4)
            times = {name: timing.median_us / 1000 for name, timing in interleave(calls, Budget(seconds)).items()}
            best = min(time for name, time in times.items() if name != "ours")
            matrix = f"{times['matrix']:.0f}" if "matrix" in times else ""
            add(kind, f"{times['ours']:.1f}", f"{times['edges']:.0f}", matrix, f"{best / times['ours']:.1f}x")


if __name__ == "__main__":
    typer.run(main)
