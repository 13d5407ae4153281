"""A step of training beside torch's: `python -m redpebble.bench.training_bench [--sparsity 0.9,0.95] [--rows 256]`.

A chain of layers with Relu between them learns by Adam and mean squares: ours on its connections, torch with dense
layers, and torch with its sparse product, which gets no optimizer. All take turns in one process, on one thread. Needs
torch: `pip install redpebble[bench]`. The sampled product of one layer stands beside our forward kernel of it.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from ..frontend.reading.model_source import read_model
from ..models import zoo
from ..tools.benching.errors import PeerError
from ..training.native_step import NativeStep, StepOptions
from ..training.optimizers import Adam
from ..verification.measuring import Budget, interleave
from .results.page_tables import PageTable, Write

Floats = NDArray[np.float32]
Call = Callable[[], object]
RATE: Final = 1e-5

STEPS: Final = PageTable(
    "steps of training", ("zeros", "ours ms", "torch, dense", "torch, sparse.mm", "over dense", "over sparse")
)


def our_step(depth: int, width: int, density: float, x: Floats, target: Floats) -> Call:
    """Return our step: outputs and gradients, Adam, new values in packed weights."""
    model = read_model(zoo.build(f"ffnn(depth={depth},width={width},density={density})"))
    step = NativeStep(model, StepOptions("mse", len(x)))
    batch, adam = step.bind({step.network.program.inputs[0].name: x}, target), Adam(len(step.values))

    def run() -> None:
        batch.run()
        adam.update(step.values, step.gradient, RATE, 1 / len(x))
        step.put()

    return run


def torch_steps(depth: int, width: int, density: float, x: Floats, target: Floats) -> dict[str, Call]:
    """Return torch's steps, dense and sparse.

    Raises:
        PeerError: torch is not installed.
    """
    try:
        torch: Any = import_module("torch")
    except ImportError:
        raise PeerError("torch is not installed, redpebble[bench] has it") from None
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    chain = [part for layer in layers for part in (layer, torch.nn.ReLU())][:-1]
    network = torch.nn.Sequential(*chain)
    adam = torch.optim.Adam(network.parameters(), RATE, fused=True)
    inputs, wanted = torch.from_numpy(x), torch.from_numpy(target)
    masks = [torch.rand(width, width) < density for _ in range(depth)]
    weights = [
        torch.nn.Parameter((0.05 * torch.randn(width, width) * mask).to_sparse_coo().coalesce()) for mask in masks
    ]
    biases = [torch.nn.Parameter(torch.zeros(width, 1)) for _ in range(depth)]

    def dense() -> None:
        adam.zero_grad()
        ((network(inputs) - wanted) ** 2).mean().backward()
        adam.step()

    def sparse() -> None:
        for parameter in (*weights, *biases):
            parameter.grad = None
        value = inputs.T.contiguous()
        for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            value = torch.sparse.mm(weight, value) + bias
            value = torch.relu(value) if number < depth - 1 else value
        ((value.T - wanted) ** 2).mean().backward()

    return {"torch, dense": dense, "torch, sparse.mm": sparse}


def main(
    sparsity: Annotated[str, typer.Option(help="Shares of zeros.")] = "0.9,0.95",
    rows: Annotated[int, typer.Option(help="Rows of a batch.")] = 256,
    depth: Annotated[int, typer.Option(help="Layers.")] = 4,
    width: Annotated[int, typer.Option(help="Neurons of a layer.")] = 1024,
    seconds: Annotated[float, typer.Option(help="Time to measure each sparsity.")] = 5.0,
    *,
    write: Write = False,
) -> None:
    """Print a line for each sparsity."""
    rng = np.random.default_rng(0)
    x, target = (rng.standard_normal((rows, width), dtype=np.float32) for _ in range(2))
    with STEPS.rows(write=write) as add:
        for share in map(float, sparsity.split(",")):
            size = (depth, width, round(1 - share, 6))
            calls = {"ours": our_step(*size, x, target), **torch_steps(*size, x, target)}
            times = {name: timing.median_us / 1000 for name, timing in interleave(calls, Budget(seconds)).items()}
            ratios = [f"{times[name] / times['ours']:.2f}x" for name in calls if name != "ours"]
            add(f"{share:g}", *(f"{times[name]:.1f}" for name in calls), *ratios)


if __name__ == "__main__":
    typer.run(main)
