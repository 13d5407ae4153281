"""The baselines of ENS-10 as ONNX models.

Each has two inputs, what it reads and `ensemble`, a number m and a unit s, and answers a normal distribution by two
numbers a and b of its own: mean m + s a, deviation s exp(b). Of networks m and s are the mean and the deviation of the
ensemble at a point. EMOS, whose deviation is s |b|, has the same ones at all points.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from ....models.graph_builder import GraphBuilder, Output
from .forecasts import LATITUDES, LONGITUDES, MEMBERS, VARIABLES

Array = NDArray[np.float32]

MLP_WIDTHS: Final = (2 * VARIABLES + 3, 128)

CHANNELS: Final = (32, 64, 128)
"""Channels of the U-Net, by level."""


def emos() -> ir.Model:
    """Return ensemble model output statistics: the mean is linear in the members, the deviation in theirs.

    It reads members and their deviation [points, 11]: a layer of two outputs, whose zeros say what neither reads.
    """
    builder = GraphBuilder()
    x, ensemble = builder.input("x", ("points", MEMBERS + 1)), builder.input("ensemble", ("points", 2))
    weight = np.zeros((2, MEMBERS + 1), np.float32)
    weight[0, :MEMBERS] = 1 / MEMBERS
    weight[1, MEMBERS] = 1
    own = builder.linear(x, weight, np.full(2, 0.1, np.float32), "emos")
    answers = _answers(builder, own, ensemble, "Abs")
    return builder.model("emos", {"answers": Output(answers, ("points", 2))})


def mlp(rng: np.random.Generator, widths: Sequence[int] = MLP_WIDTHS) -> ir.Model:
    """Return a network with random weights, Relu between its layers, of a point's features."""
    builder = GraphBuilder()
    value, ensemble = builder.input("x", ("points", widths[0])), builder.input("ensemble", ("points", 2))

    def linear(x: ir.Value, inputs: int, outputs: int, name: str, gain: float) -> ir.Value:
        weight = rng.standard_normal((outputs, inputs), dtype=np.float32) * np.float32(gain / inputs**0.5)
        # a bias of zeros is no layer's that could be trained
        return builder.linear(x, weight, rng.uniform(-0.1, 0.1, outputs).astype(np.float32), name)

    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        value = builder.op("Relu", [linear(value, inputs, outputs, f"layer{number}", 1.4)], f"layer{number}/Relu")
    answers = _answers(builder, linear(value, widths[-1], 2, "own", 0.1), ensemble)
    return builder.model("mlp", {"answers": Output(answers, ("points", 2))})


def unet(
    rng: np.random.Generator, channels: int = 2 * VARIABLES, rows: int = LATITUDES, columns: int = LONGITUDES
) -> ir.Model:
    """Return the U-Net with random weights, batch norms folded into its convolutions, of fields of all variables."""
    builder = GraphBuilder()
    fields, ensemble = (
        builder.input(name, ("days", count, rows, columns)) for name, count in (("x", channels), ("ensemble", 2))
    )
    layer = _Convolutions(builder, rng)
    first, second, third = CHANNELS
    wide = layer(layer(fields, channels, first, "enc_l0_0"), first, first, "enc_l0_1")
    half = layer(layer(_halved(builder, wide, "pool_l0"), first, second, "enc_l1_0"), second, second, "enc_l1_1")
    value = layer(layer(_halved(builder, half, "pool_l1"), second, third, "enc_l2_0"), third, third, "enc_l2_1")
    value = layer(layer(value, third, third, "dec_l2_0"), third, second, "dec_l2_1")
    value = builder.op("Concat", [half, _doubled(builder, value, rows // 2 % 2, "up_l1")], "cat_l1", {"axis": 1})
    value = layer(layer(value, 2 * second, second, "dec_l1_0"), second, first, "dec_l1_1")
    value = builder.op("Concat", [wide, _doubled(builder, value, rows % 2, "up_l0")], "cat_l0", {"axis": 1})
    value = layer(layer(value, 2 * first, first, "dec_l0_0"), first, first, "dec_l0_1")
    value = layer.convolution(value, first, 2, "dec_l0_2", 0.1)
    answers = _answers(builder, value, ensemble)
    return builder.model("unet", {"answers": Output(answers, ("days", 2, rows, columns))})


class _Convolutions:
    """Convolutions of 3 x 3 with random weights, which keep the size of fields."""

    def __init__(self, builder: GraphBuilder, rng: np.random.Generator) -> None:
        self.builder, self.rng = builder, rng

    def __call__(self, x: ir.Value, inputs: int, outputs: int, name: str) -> ir.Value:
        return self.builder.op("Relu", [self.convolution(x, inputs, outputs, name, 2**0.5)], f"{name}/Relu")

    def convolution(self, x: ir.Value, inputs: int, outputs: int, name: str, gain: float) -> ir.Value:
        weight = self.rng.standard_normal((outputs, inputs, 3, 3), dtype=np.float32) * np.float32(
            gain / (9 * inputs) ** 0.5
        )
        operands = [self.builder.constant(f"{name}.weight", weight)]
        operands.append(self.builder.constant(f"{name}.bias", np.zeros(outputs, np.float32)))
        return self.builder.op("Conv", [x, *operands], name, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})


def _halved(builder: GraphBuilder, x: ir.Value, name: str) -> ir.Value:
    return builder.op("MaxPool", [x], name, {"kernel_shape": [2, 2], "strides": [2, 2]})


def _doubled(builder: GraphBuilder, x: ir.Value, missing: int, name: str) -> ir.Value:
    """Return fields of twice the size, between pixels linear; a row that is `missing` is the first one again."""
    scales = builder.constant(f"{name}.scales", np.array([1, 1, 2, 2], np.float32))
    value = builder.op("Resize", [x, None, scales], name, {"mode": "linear"})
    if not missing:
        return value
    before = builder.constant(f"{name}.before", np.array([0, 0, missing, 0, 0, 0, 0, 0], np.int64))
    return builder.op("Pad", [value, before], f"{name}/Pad", {"mode": "edge"})


def _pair(builder: GraphBuilder, x: ir.Value, name: str) -> tuple[ir.Value, ir.Value]:
    """Return the two halves of the second axis, which has two values."""
    ends = [builder.constant(f"{name}.from_{end}", np.array([end], np.int64)) for end in range(3)]
    first, second = (builder.op("Slice", [x, ends[one], ends[one + 1], ends[1]], f"{name}/{one}") for one in range(2))
    return first, second


def _answers(builder: GraphBuilder, own: ir.Value, ensemble: ir.Value, positive: str = "Exp") -> ir.Value:
    (mean, deviation), (a, b) = _pair(builder, ensemble, "ensemble"), _pair(builder, own, "own")
    moved = builder.op("Add", [mean, builder.op("Mul", [a, deviation], "correction")], "moved")
    wide = builder.op("Mul", [builder.op(positive, [b], "factor"), deviation], "deviation")
    return builder.op("Concat", [moved, wide], "answers", {"axis": 1})
