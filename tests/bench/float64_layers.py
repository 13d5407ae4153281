"""Networks small enough to test engines with, and what they compute in double precision."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from redpebble.models import zoo
from redpebble.models.graph_builder import GraphBuilder, Output
from redpebble.models.pruned_weights import random_bias, random_weight

Floats = NDArray[np.float32]
Layers = list[tuple[Floats, Floats]]
"""Weight [outputs, inputs] and bias of each layer."""


def mlp(widths: tuple[int, ...], density: float) -> tuple[ir.Model, Layers]:
    """A chain of sparse layers with Relu between them, and its weights; one row and one column are empty."""
    rng, builder = np.random.default_rng(7), GraphBuilder()
    value = builder.input("x", ("batch", widths[0]))
    layers: Layers = []
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        weight, bias = random_weight(outputs, inputs, density, rng), random_bias(outputs, rng)
        weight[outputs // 2], weight[:, inputs // 2] = 0, 0
        value = builder.linear(value, weight, bias, f"layers.{number}")
        if number < len(widths) - 2:
            value = builder.op("Relu", [value], f"/layers.{number}/Relu")
        layers.append((weight, bias))
    return builder.model("mlp", {"y": Output(value, ("batch", widths[-1]))}), layers


def expected(layers: Layers, x: Floats) -> NDArray[np.float64]:
    """y [batch, outputs] in double precision."""
    value = x.astype(np.float64)
    for number, (weight, bias) in enumerate(layers):
        value = value @ weight.T.astype(np.float64) + bias
        value = np.maximum(value, 0) if number < len(layers) - 1 else value
    return value


def saved(model: ir.Model, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    zoo.save(model, path)
    return path
