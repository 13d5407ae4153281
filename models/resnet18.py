"""ResNet-18 of handwritten digits, 80 % of the weights of its blocks zeros, as trained and stored.

`python -m redpebble.pytorch.recipes.resnet18 models` makes `resnet18_80.npz.xz`, the nonzeros of its weights in a byte
each, and `resnet18_80.json`, the card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .digits_cnn import CLASSES
from .graph_builder import GraphBuilder, Output
from .sentences.archive import compressed, read, without_zeros

if TYPE_CHECKING:
    import onnx_ir as ir

WEIGHTS: Final = Path(__file__).with_name("resnet18_80.npz.xz")
CARD: Final = WEIGHTS.with_name("resnet18_80.json")
SIDE: Final = 32


class Convolution(NamedTuple):
    """A convolution with what is folded into it: name, values between windows, and taps on a side."""

    name: str
    stride: int
    taps: int


def convolutions() -> list[Convolution]:
    """Return the convolutions in the order in which they are stored: those of a block, then the way past it."""
    found = [Convolution("conv1", 2, 7)]
    for stage in range(1, 5):
        for block in range(2):
            stride = 2 if stage > 1 and not block else 1
            name = f"layer{stage}.{block}"
            found += [Convolution(f"{name}.conv1", stride, 3), Convolution(f"{name}.conv2", 1, 3)]
            if stride > 1:
                found.append(Convolution(f"{name}.downsample.0", stride, 1))
    return found


@dataclass(frozen=True)
class ResNet18Digits:
    """ResNet-18 trained on digits of 32 x 32 pixels, 80 % zeros; a seed changes nothing."""

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: images [batch, 3, 32, 32] -> logits [batch, 10]."""
        del rng
        return resnet_model(WEIGHTS.read_bytes())


def resnet_record() -> dict[str, Any]:
    """Facts of the committed weights."""
    return json.loads(CARD.read_text())


def packed(weights: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return the bytes of weights and biases, `conv1.weight`, `layer1.0.conv1.bias`, ... `fc.bias`, as stored."""
    names = [*(one.name for one in convolutions()), "fc"]
    matrices = {
        f"{at}.weight": weights[f"{name}.weight"].reshape(len(weights[f"{name}.bias"]), -1)
        for at, name in enumerate(names)
    }
    biases = {f"{at}.bias": weights[f"{name}.bias"] for at, name in enumerate(names)}
    return compressed(len(names), without_zeros(matrices, biases))


def resnet_model(data: bytes) -> ir.Model:
    """The network of stored bytes, as torch exports it: Conv, Relu, MaxPool, Add, GlobalAveragePool, Flatten, Gemm."""
    builder, layers = GraphBuilder(), read(data)
    stored = {one.name: (one, arrays) for one, arrays in zip(convolutions(), layers[:-1], strict=True)}

    def convolved(value: ir.Value, name: str) -> ir.Value:
        one, arrays = stored[name]
        weight = arrays["weight"].reshape(len(arrays["bias"]), -1, one.taps, one.taps)
        parameters = [builder.constant(f"{name}.weight", weight), builder.constant(f"{name}.bias", arrays["bias"])]
        attributes = {"kernel_shape": [one.taps] * 2, "strides": [one.stride] * 2, "pads": [one.taps // 2] * 4}
        return builder.op("Conv", [value, *parameters], f"/{name}/Conv", attributes)

    value = builder.op("Relu", [convolved(builder.input("images", ("batch", 3, SIDE, SIDE)), "conv1")], "/relu")
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    value = builder.op("MaxPool", [value], "/maxpool", pool)
    for stage in range(1, 5):
        for block in range(2):
            name = f"layer{stage}.{block}"
            first = builder.op("Relu", [convolved(value, f"{name}.conv1")], f"/{name}/relu1")
            past = convolved(value, f"{name}.downsample.0") if f"{name}.downsample.0" in stored else value
            added = builder.op("Add", [convolved(first, f"{name}.conv2"), past], f"/{name}/Add")
            value = builder.op("Relu", [added], f"/{name}/relu2")
    rows = builder.op("Flatten", [builder.op("GlobalAveragePool", [value], "/mean")], "/flatten")
    parameters = [builder.constant(f"fc.{name}", layers[-1][name]) for name in ("weight", "bias")]
    logits = builder.op("Gemm", [rows, *parameters], "/fc/Gemm", {"transB": 1})
    return builder.model("resnet18_80", {"logits": Output(logits, ("batch", CLASSES))})
