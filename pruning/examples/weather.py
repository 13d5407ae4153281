"""Weather post-processing in the shape of ENS-10: `python -m redpebble.pruning.examples.weather`.

An ensemble forecast of temperature is biased and too sure of itself. A network reads means and spreads of 11 variables
over the members, latitude, longitude and season at a point of the grid (361 x 720), and answers the mean and the log of
the deviation of a normal distribution. It is trained on its CRPS, compared with EMOS, and pruned. Fields are generated:
the data of ENS-10 cannot be shipped; nothing here says anything about real weather.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from scipy.special import ndtr

from redpebble.models.adam import Adam
from redpebble.models.graph_builder import GraphBuilder, Output
from redpebble.pruning.chains import Chain, ChainLayer, ChainWeights
from redpebble.pruning.finetune import RATE
from redpebble.pruning.prune import prune
from redpebble.verification.oracle import Oracle

Array = NDArray[np.float32]

LATITUDES: Final = 361
LONGITUDES: Final = 720
VARIABLES: Final = 11
FEATURES: Final = 2 * VARIABLES + 3
MEMBERS: Final = 10
HIDDEN: Final = 512
BATCH: Final = 512
ROOT_PI: Final = float(np.sqrt(np.pi))


class Forecasts(NamedTuple):
    """Features [points, 25], the first two of them mean and spread of temperature, and what came true [points]."""

    features: Array
    truth: Array


class Normal(NamedTuple):
    """Normal distributions: means and deviations [points]."""

    mean: Array
    deviation: Array


@dataclass(frozen=True)
class Losses:
    """Mean CRPS of the raw ensemble, of EMOS, of the dense and of the pruned network; and the gain in time."""

    raw: float
    emos: float
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


def crps(forecast: Normal, truth: Array) -> float:
    """Return the mean continuous ranked probability score of normal distributions (Gneiting et al. 2005)."""
    z = ((truth - forecast.mean) / forecast.deviation).astype(np.float64)
    score = z * (2 * ndtr(z) - 1) + 2 * _density(z) - 1 / ROOT_PI
    return float((forecast.deviation * score).mean())


def crps_gradients(answers: Array, truth: Array) -> Array:
    """Return the gradient of the mean CRPS by answers [points, 2]: means and logs of deviations."""
    deviation = np.exp(answers[:, 1])
    z = (truth - answers[:, 0]) / deviation
    by_mean = 1 - 2 * ndtr(z)
    by_log = deviation * (2 * _density(z) - 1 / ROOT_PI)
    return (np.stack((by_mean, by_log), axis=1) / len(truth)).astype(np.float32)


def _density(z: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)


def normal_of(answers: Array) -> Normal:
    """Return the distributions that answers [points, 2] stand for."""
    return Normal(answers[:, 0], np.exp(np.clip(answers[:, 1], -10, 10)))


def trained(widths: Sequence[int], data: Forecasts, steps: int, rng: np.random.Generator) -> ChainWeights:
    """Return a network with Relu between its layers, trained for some steps; EMOS is one without hidden layers."""
    layers = [ChainLayer(f"w{n}", False, f"b{n}", "Relu") for n in range(len(widths) - 1)]
    layers[-1] = ChainLayer(layers[-1].weight, False, layers[-1].bias, "Identity")
    weights = [
        (rng.standard_normal((inputs, outputs)) * (1.4 / inputs**0.5)).astype(np.float32)
        for inputs, outputs in pairwise(widths)
    ]
    network = ChainWeights(Chain("x", tuple(layers)), weights, [np.zeros(width, np.float32) for width in widths[1:]])
    optimizer = Adam([*network.weights, *network.biases])
    for step in range(steps):
        chosen = rng.integers(0, len(data.truth), BATCH)
        values = network.forward(data.features[chosen, : widths[0]])
        by_weight, by_bias = network.gradients(values, crps_gradients(values[-1], data.truth[chosen]))
        optimizer.update([*by_weight, *by_bias], RATE * float(np.cos(step / steps * np.pi / 2)) ** 2)
    return network


def model_of(network: ChainWeights) -> ir.Model:
    """Return a network as an ONNX model."""
    builder = GraphBuilder()
    value = builder.input("x", ("points", network.weights[0].shape[0]))
    for layer, weight, bias in zip(network.chain.layers, network.weights, network.biases, strict=True):
        value = builder.linear(value, weight.T.copy(), bias, layer.weight)
        if layer.activation == "Relu":
            value = builder.op("Relu", [value], f"{layer.weight}/Relu")
    return builder.model("weather", {"answers": Output(value, ("points", 2))})


def example(steps: int = 4000, points: int = 60_000, speedup: float = 4.0, finetune: float = 20.0) -> Losses:
    """Return the scores on points that nothing was fitted to, half as many as those that all was."""
    rng = np.random.default_rng(0)
    data, tests = generated(points, rng), generated(points // 2, rng)
    emos = trained((2, 2), data, steps, rng)
    network = model_of(trained((FEATURES, HIDDEN, HIDDEN, 2), data, steps, rng))
    result = prune(network, {"x": data.features[:8192]}, speedup=speedup, rows=LONGITUDES, finetune=finetune)
    answers = [Oracle(model).run({"x": tests.features})[0] for model in (network, result.model)]
    return Losses(
        crps(Normal(tests.features[:, 0], np.maximum(tests.features[:, 1], np.float32(1e-3))), tests.truth),
        crps(normal_of(emos.forward(tests.features[:, :2])[-1]), tests.truth),
        crps(normal_of(answers[0]), tests.truth),
        crps(normal_of(answers[1]), tests.truth),
        result.report.density,
        result.report.measured.speedup,
    )


def main() -> None:
    """Print the scores."""
    found = example()
    print(f"CRPS: ensemble {found.raw:.4f}, EMOS {found.emos:.4f}, network {found.dense:.4f}")
    print(f"pruned to {found.density:.1%}, {found.speedup:.2f}x as fast: {found.pruned:.4f}")


if __name__ == "__main__":
    main()
