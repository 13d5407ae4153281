"""Train and prune ENS-10's U-Net on generated days: `python -m redpebble.pytorch.recipes.weather_unet FOLDER`.

The network learns the CRPS on windows of the grid, is pruned, learns again under the mask, and is written for the whole
grid, 361 x 720, dense and sparse.
"""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import onnx_ir
import torch
import typer
from torch import Tensor

from ...export.save_model import save_model
from ...pruning.examples.weather.forecasts import Day
from ...pruning.examples.weather.generated_fields import generated_day
from ...pruning.examples.weather.networks import unet
from ...pruning.examples.weather.scores import crps
from ...verification.oracle import Oracle
from ..batches import Batch, Module
from ..distil import distil
from ..imported.module import OnnxModule
from ..losses import Answer, first_tensor
from ..prune import prune

WINDOW: Final = (64, 96)
DAYS: Final = 4


def crps_of(answer: Answer, _: Answer) -> Tensor:
    """Return the CRPS of what a network answers to a batch."""
    found, truth = first_tensor(answer.output), answer.batch["truth"]
    mean, deviation = found[:, 0], found[:, 1]
    z = (truth - mean) / deviation
    between, density = torch.erf(z / 2**0.5), torch.exp(z * z / -2) * (2 / np.pi) ** 0.5
    return (deviation * (z * between + density - np.pi**-0.5)).mean()


def forward(module: Module, batch: Batch) -> dict[str, Tensor]:
    """Return what a network answers to the days of a batch."""
    return module(batch["x"], batch["ensemble"])


def batches(epoch: int, seed: int = 0, count: int = 16) -> Iterator[dict[str, Tensor]]:
    """Yield batches of windows; each epoch has others."""
    rng = np.random.default_rng([seed, epoch])
    for _ in range(count):
        days = [generated_day(rng, *WINDOW) for _ in range(DAYS)]
        names = {"x": [one.features for one in days], "ensemble": [one.ensemble for one in days]}
        names["truth"] = [one.truth for one in days]
        yield {name: torch.from_numpy(np.stack(values)) for name, values in names.items()}


def whole(module: OnnxModule) -> onnx_ir.Model:
    """Return the network for the whole grid, with the weights of a module."""
    model, trained = unet(np.random.default_rng(0)), module.updated().graph.initializers
    for name, value in model.graph.initializers.items():
        if name.endswith((".weight", ".bias")):
            value.const_value = trained[name].const_value
    return model


def score(model: onnx_ir.Model, days: Sequence[Day]) -> float:
    """Return the mean CRPS over whole days."""
    run = Oracle(model).run
    answers = [run({"x": one.features[None], "ensemble": one.ensemble[None]})[0][0] for one in days]
    return float(
        np.mean([crps(found.reshape(2, -1).T, one.truth.ravel()) for found, one in zip(answers, days, strict=True)])
    )


def main(
    folder: Path,
    sparsity: Annotated[float, typer.Option(help="Share of zeros in all but the first and the last layer.")] = 0.9,
    steps: Annotated[int, typer.Option(help="Steps of the dense training, and of that under the mask.")] = 200,
) -> None:
    """Train both, print their scores on two days, and write them."""
    torch.manual_seed(0)
    dense = OnnxModule(unet(np.random.default_rng(0), rows=WINDOW[0], columns=WINDOW[1]))
    settings: dict[str, Any] = {"losses": [crps_of], "forward": forward, "steps": steps, "autocast": None}
    distil(dense, None, batches, rate=2e-3, **settings)
    sparse = copy.deepcopy(dense)
    inner = [name for name, _ in sparse.named_parameters() if name.endswith(".weight") and "." in name][1:-1]
    layers = [name.removesuffix(".weight") for name in inner]
    prune(sparse, batches(0), sparsity=sparsity, layers=layers, forward=forward)
    distil(sparse, None, lambda epoch: batches(epoch, 1), rate=1e-3, **settings)
    rng = np.random.default_rng(1)
    days = [generated_day(rng) for _ in range(2)]
    raw = np.mean([crps(one.ensemble.reshape(2, -1).T, one.truth.ravel()) for one in days])
    print(f"ensemble: CRPS {raw:.4f}")
    folder.mkdir(exist_ok=True)
    for name, module in (("dense", dense), ("sparse", sparse)):
        model = whole(module)
        save_model(model, folder / f"unet_{name}.onnx")
        print(f"U-Net, {name}: CRPS {score(model, days):.4f}", flush=True)


if __name__ == "__main__":
    typer.run(main)
