"""ENS-10's baselines for points, dense and pruned: `python -m redpebble.pruning.examples.weather [FOLDER]`.

The folder has ENS-10's files; without it forecasts are drawn. The U-Net is trained by
`redpebble.pytorch.recipes.weather_unet`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import onnx_ir as ir
import typer

from ....models.pruned_weights import magnitude_mask
from ....training.finetune import finetune
from ....verification.oracle import Oracle
from ...runs.timing import ModelClock
from .ens10_files import Ens10Files
from .forecasts import LONGITUDES, Array, Forecasts
from .generated_fields import generated
from .networks import emos, mlp
from .scores import crps, eecrps

BATCH = 512


class Scores(NamedTuple):
    """Mean CRPS, and EECRPS where extreme forecast indices are known."""

    crps: float
    eecrps: float | None

    def __str__(self) -> str:
        """Return both."""
        return f"CRPS {self.crps:.4f}" + ("" if self.eecrps is None else f", EECRPS {self.eecrps:.4f}")


class Found(NamedTuple):
    """Scores of the raw ensemble, EMOS, the dense and the pruned network, and the gain in time."""

    raw: Scores
    emos: Scores
    dense: Scores
    pruned: Scores
    speedup: float


def scored(answers: Array, tests: Forecasts) -> Scores:
    """Return the scores of means and deviations [points, 2]."""
    extremes = tests.extremes
    return Scores(crps(answers, tests.truth), None if extremes is None else eecrps(answers, tests.truth, extremes))


def baselines(data: Forecasts, tests: Forecasts, *, epochs: int = 10, sparsity: float = 0.8) -> Found:
    """Return the scores on forecasts that nothing was fitted to.

    The network, which `redpebble.prune` finds too small, keeps its largest weights, and what is left is trained on.
    Speed is that of sessions for the points of one latitude, against onnxruntime with the dense network.
    """

    def fitted(model: ir.Model, feeds: Mapping[str, Array], rate: float) -> ir.Model:
        return finetune(model, feeds, labels=data.truth, loss="crps", epochs=epochs, batch=BATCH, rate=rate).model

    def score(model: ir.Model, feeds: Mapping[str, Array]) -> Scores:
        return scored(Oracle(model).run(feeds)[0], tests)

    dense = fitted(mlp(np.random.default_rng(0), (data.features.shape[1], 128)), data.for_networks, 1e-2)
    sparse = fitted(_largest(dense, sparsity), data.for_networks, 5e-3)
    clock = ModelClock(dense, data.part(slice(0, LONGITUDES)).for_networks, 1)
    raw = np.maximum(tests.ensemble, np.array([-np.inf, 1e-6], np.float32))
    return Found(
        scored(raw, tests),
        score(fitted(emos(), data.for_emos, 1e-2), tests.for_emos),
        score(dense, tests.for_networks),
        score(sparse, tests.for_networks),
        clock.times(sparse).speedup,
    )


def _largest(model: ir.Model, sparsity: float) -> ir.Model:
    """Return a model whose layers keep the largest of their weights."""
    found = model.clone()
    for value in found.graph.initializers.values():
        weight = value.const_value.numpy() if value.const_value is not None else np.zeros(0, np.float32)
        if weight.ndim == 2:
            value.const_value = ir.tensor(weight * magnitude_mask(weight, sparsity), name=value.name)
    return found


def main(
    folder: Annotated[Path | None, typer.Argument(help="ENS-10's files; by itself forecasts are drawn.")] = None,
    target: Annotated[str, typer.Option(help="What is corrected: t2m, z500 or t850.")] = "t2m",
    a_day: Annotated[int, typer.Option(help="Points of each day.")] = 256,
    epochs: Annotated[int, typer.Option(help="Times that all points are trained on.")] = 10,
    sparsity: Annotated[float, typer.Option(help="Share of zeros in the pruned network.")] = 0.8,
) -> None:
    """Print the scores."""
    rng = np.random.default_rng(0)
    if folder is None:
        data, tests = generated(60_000, rng), generated(30_000, rng, extremes=True)
    else:
        files = Ens10Files(folder, target)
        data, tests = files.points("train", a_day, rng), files.points("test", a_day, rng)
    found = baselines(data, tests, epochs=epochs, sparsity=sparsity)
    print(f"ensemble: {found.raw}\nEMOS: {found.emos}\nMLP: {found.dense}")
    print(f"{sparsity:.0%} zeros, {found.speedup:.2f}x as fast: {found.pruned}")


if __name__ == "__main__":
    typer.run(main)
