"""A really trained and pruned convolutional classifier of handwritten digits, in the manner of a ResNet.

`redpebble.pytorch.recipes.digits_cnn` makes two files for each share of zeros: `digits_cnn.npz`, the nonzeros of its
weights, and `digits_cnn.json`, the accuracies on the images of `digits` before pruning and after it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .graph_builder import GraphBuilder, Output

if TYPE_CHECKING:
    import onnx_ir as ir

ZEROS: Final = 90
"""Share of zeros, in percent, of the model without parameters."""


def weights_file(zeros: int = ZEROS) -> Path:
    """Return the file of the nonzeros at a share of zeros."""
    return Path(__file__).with_name("digits_cnn.npz" if zeros == ZEROS else f"digits_cnn_{zeros}.npz")


def card_file(zeros: int = ZEROS) -> Path:
    """Return the file of the facts about them."""
    return weights_file(zeros).with_suffix(".json")


class Convolution(NamedTuple):
    """A layer of the network: taps on a side, values between windows, and the earlier layer whose result is added."""

    inputs: int
    outputs: int
    taps: int = 3
    stride: int = 1
    added: int = -1


LAYERS: Final = (
    Convolution(1, 32),
    Convolution(32, 64),
    Convolution(64, 64),
    Convolution(64, 64, added=1),
    Convolution(64, 128, stride=2),
    Convolution(128, 128, taps=1),
    Convolution(128, 128, added=4),
)
"""Each with a Relu behind it; the mean of all pixels and a linear layer follow."""

CLASSES: Final = 10


@dataclass(frozen=True)
class DigitsCnn:
    """Convolutional classifier of 8 x 8 handwritten digits, pruned to 80 or 90 %; a seed changes nothing."""

    zeros: int = ZEROS

    def __post_init__(self) -> None:
        if not weights_file(self.zeros).exists():
            raise ValueError(f"zeros: expected 80 or 90, got {self.zeros}")

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, 1, 8, 8] -> logits [batch, 10]."""
        del rng
        return cnn_model(read_weights(weights_file(self.zeros)))


def cnn_record(zeros: int = ZEROS) -> dict[str, Any]:
    """Facts of the committed weights."""
    return json.loads(card_file(zeros).read_text())


def weight_shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of all weights and biases, by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for index, layer in enumerate(LAYERS):
        shapes[f"layers.{index}.weight"] = (layer.outputs, layer.inputs, layer.taps, layer.taps)
        shapes[f"layers.{index}.bias"] = (layer.outputs,)
    return shapes | {"classes.weight": (CLASSES, LAYERS[-1].outputs), "classes.bias": (CLASSES,)}


def write_weights(path: Path, weights: dict[str, NDArray[np.float32]]) -> None:
    """Write the nonzeros of weights: for each the bits that say where they are, and the values."""
    stored: dict[str, NDArray[Any]] = {}
    for name, weight in weights.items():
        stored[f"{name}.places"] = np.packbits(weight.reshape(-1) != 0)
        stored[f"{name}.values"] = weight[weight != 0]
    np.savez_compressed(path, allow_pickle=False, **stored)


def read_weights(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the weights and biases of a file, dense."""
    weights: dict[str, NDArray[np.float32]] = {}
    with np.load(path) as stored:
        for name, shape in weight_shapes().items():
            weight = np.zeros(int(np.prod(shape)), dtype=np.float32)
            weight[np.unpackbits(stored[f"{name}.places"], count=len(weight)).astype(np.bool_)] = stored[
                f"{name}.values"
            ]
            weights[name] = weight.reshape(shape)
    return weights


def cnn_model(weights: dict[str, NDArray[np.float32]]) -> ir.Model:
    """The network as torch exports it: Conv, Add, Relu, GlobalAveragePool, Flatten and Gemm."""
    builder = GraphBuilder()
    value, results = builder.input("x", ("batch", 1, 8, 8)), list[Any]()
    for index, layer in enumerate(LAYERS):
        name, pad = f"layers.{index}", layer.taps // 2
        parameters = [builder.constant(f"{name}.{part}", weights[f"{name}.{part}"]) for part in ("weight", "bias")]
        attributes = {"kernel_shape": [layer.taps] * 2, "strides": [layer.stride] * 2, "pads": [pad] * 4}
        value = builder.op("Conv", [value, *parameters], f"/{name}/Conv", attributes)
        if layer.added >= 0:
            value = builder.op("Add", [value, results[layer.added]], f"/{name}/Add")
        value = builder.op("Relu", [value], f"/{name}/Relu")
        results.append(value)
    rows = builder.op("Flatten", [builder.op("GlobalAveragePool", [value], "/mean")], "/flatten")
    parameters = [builder.constant(name, weights[name]) for name in ("classes.weight", "classes.bias")]
    logits = builder.op("Gemm", [rows, *parameters], "/classes/Gemm", {"transB": 1})
    return builder.model("digits_cnn", {"logits": Output(logits, ("batch", CLASSES))})
