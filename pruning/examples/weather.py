"""Weather post-processing on a grid like that of ENS-10: `python -m redpebble.pruning.examples.weather`.

An ensemble forecast of temperature is biased and too sure of itself. A network reads means and spreads of 11 variables
over the members, latitude, longitude and season at a point of the grid (361 x 720), and answers the mean and the
deviation of a normal distribution. It is trained on its CRPS, compared with a linear network on the same statistics,
and pruned. Neither is a model of ENS-10: its EMOS reads each member, its networks are smaller. Fields are generated:
nothing here says anything about real weather.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from ...models.graph_builder import GraphBuilder, Output
from ...training.finetune import finetune as trained
from ...training.loss_values import mean_loss
from ...verification.oracle import Oracle
from ..prune import prune

Array = NDArray[np.float32]

LATITUDES: Final = 361
LONGITUDES: Final = 720
VARIABLES: Final = 11
FEATURES: Final = 2 * VARIABLES + 3
MEMBERS: Final = 10
HIDDEN: Final = 512
BATCH: Final = 512


class Forecasts(NamedTuple):
    """Features [points, 25], the first two of them mean and spread of temperature, and what came true [points]."""

    features: Array
    truth: Array


@dataclass(frozen=True)
class Losses:
    """Mean CRPS of the raw ensemble, of a linear, the dense and the pruned network; and the gain in time."""

    raw: float
    linear: float
    dense: float
    pruned: float
    density: float
    speedup: float


def generated(count: int, rng: np.random.Generator) -> Forecasts:
    """Return forecasts at random points of the grid and times of the year."""
    latitude = (rng.integers(0, LATITUDES, count) / (LATITUDES - 1) - 0.5) * np.pi
    longitude = rng.integers(0, LONGITUDES, count) / LONGITUDES * 2 * np.pi
    season = rng.uniform(0, 2 * np.pi, count)
    state = rng.standard_normal((count, VARIABLES))
    uncertainty = 0.4 + 0.3 * np.abs(state[:, 1]) + 0.2 * np.cos(latitude) * (1 + np.sin(season))
    climate = np.cos(latitude) * 2 + 0.6 * np.sin(latitude) * np.cos(season)
    truth = climate + state[:, 0] + 0.4 * np.tanh(state[:, 2] * state[:, 3]) + uncertainty * rng.standard_normal(count)
    bias = 0.5 * np.sin(3 * longitude) * np.cos(2 * latitude) + 0.4 * np.maximum(state[:, 4], 0) * np.cos(season)
    members = (climate + state[:, 0] + bias)[:, np.newaxis] + 0.5 * uncertainty[:, np.newaxis] * rng.standard_normal(
        (count, MEMBERS)
    )
    others = state[:, 1:, np.newaxis] + 0.3 * rng.standard_normal((count, VARIABLES - 1, MEMBERS))
    every = np.concatenate((members[:, np.newaxis], others), axis=1)
    summary = np.stack((every.mean(axis=2), every.std(axis=2)), axis=2).reshape(count, 2 * VARIABLES)
    place = np.stack((latitude, np.sin(longitude), np.cos(season)), axis=1)
    return Forecasts(np.concatenate((summary, place), axis=1).astype(np.float32), truth.astype(np.float32))


def network(widths: Sequence[int], rng: np.random.Generator) -> ir.Model:
    """Return a network with random weights, Relu between its layers; a linear one has no hidden layers."""
    builder = GraphBuilder()
    value = builder.input("x", ("points", widths[0]))

    def linear(x: ir.Value, inputs: int, outputs: int, name: str) -> ir.Value:
        weight = rng.standard_normal((outputs, inputs), dtype=np.float32) * np.float32(1.4 / inputs**0.5)
        return builder.linear(x, weight, np.zeros(outputs, np.float32), name)

    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        value = builder.op("Relu", [linear(value, inputs, outputs, f"layer{number}")], f"layer{number}/Relu")
    mean = linear(value, widths[-1], 1, "mean")
    deviation = builder.op("Exp", [linear(value, widths[-1], 1, "log_deviation")], "deviation")
    answers = builder.op("Concat", [mean, deviation], "answers", {"axis": 1})
    return builder.model("weather", {"answers": Output(answers, ("points", 2))})


def crps(answers: Array, truth: Array) -> float:
    """Return the mean continuous ranked probability score of means and deviations [points, 2]."""
    return mean_loss("crps", answers, truth[:, np.newaxis])


def example(epochs: int = 10, points: int = 60_000, speedup: float = 4.0, finetune: float = 20.0) -> Losses:
    """Return the scores on points that nothing was fitted to, half as many as those that all was."""
    rng = np.random.default_rng(0)
    data, tests = generated(points, rng), generated(points // 2, rng)

    def fitted(widths: Sequence[int], rate: float) -> ir.Model:
        feeds = {"x": data.features[:, : widths[0]]}
        start = network(widths, rng)
        return trained(start, feeds, labels=data.truth, loss="crps", epochs=epochs, batch=BATCH, rate=rate).model

    def score(model: ir.Model, features: Array) -> float:
        return crps(Oracle(model).run({"x": features})[0], tests.truth)

    linear, dense = fitted((2,), 3e-2), fitted((FEATURES, HIDDEN, HIDDEN), 1e-3)
    result = prune(dense, {"x": data.features[:8192]}, speedup=speedup, rows=LONGITUDES, finetune=finetune)
    raw = np.maximum(tests.features[:, :2], np.array([-np.inf, 1e-3], np.float32))
    return Losses(
        crps(raw, tests.truth),
        score(linear, np.ascontiguousarray(tests.features[:, :2])),
        score(dense, tests.features),
        score(result.model, tests.features),
        result.report.density,
        result.report.measured.speedup,
    )


def main() -> None:
    """Print the scores."""
    found = example()
    print(f"CRPS: ensemble {found.raw:.4f}, linear {found.linear:.4f}, network {found.dense:.4f}")
    print(f"pruned to {found.density:.1%}, {found.speedup:.2f}x as fast: {found.pruned:.4f}")


if __name__ == "__main__":
    main()
