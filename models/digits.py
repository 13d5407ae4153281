"""A really trained and pruned classifier of handwritten digits, committed with the images it was never shown.

`digits_training` makes the three committed files: `digits.onnx` (the weights, a fifteenth of their dense size),
`digits.json` (accuracies, sparsities, seed, hash) and `digits_test.npz` (the held-out images and labels).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .graph_builder import GraphBuilder, Output

if TYPE_CHECKING:
    import onnx_ir as ir

MODEL_FILE: Final = Path(__file__).with_name("digits.onnx")
RECORD_FILE: Final = Path(__file__).with_name("digits.json")
TEST_FILE: Final = Path(__file__).with_name("digits_test.npz")

BRIGHTEST: Final = 16
"""Pixels are whole numbers 0 .. 16; the model reads them divided by 16."""

_WIDEST_GAP: Final = 255


class Layer(NamedTuple):
    """One layer: weight [outputs, inputs] and bias [outputs]."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]


class DigitImages(NamedTuple):
    """Images [count, 64] of values 0 .. 1 and their labels [count], 0 .. 9."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Digits:
    """Classifier of 8 x 8 handwritten digits, 64-1024-1024-10 with Relu, trained and pruned to 95 %.

    The committed weights, dense, as torch exports them; a seed changes nothing.
    """

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, 64] -> logits [batch, 10]."""
        del rng
        return dense_model(read_layers(compact_digits()))


def compact_digits() -> ir.Model:
    """The committed model, whose weights are folded from their nonzeros when it is loaded."""
    import onnx_ir as ir

    return ir.load(MODEL_FILE)  # pyright: ignore[reportUnknownMemberType]


def digits_record() -> dict[str, Any]:
    """Facts of the committed model, as in `digits.json`.

    Raises:
        ValueError: the committed model is not the one the record speaks of.
    """
    record: dict[str, Any] = json.loads(RECORD_FILE.read_text())
    found = hashlib.sha256(MODEL_FILE.read_bytes()).hexdigest()
    if found != record["sha256"]:
        raise ValueError(f"{MODEL_FILE.name}: expected sha256 {record['sha256']}, got {found}")
    return record


def digits_test_set() -> DigitImages:
    """The held-out images."""
    with np.load(TEST_FILE) as stored:
        return DigitImages(scaled(stored["images"]), stored["labels"].astype(np.int64))


def digits_accuracy(run: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> float:
    """Share of the held-out images that are classified right.

    Args:
        run: images [count, 64] -> logits [count, 10].
    """
    images, labels = digits_test_set()
    return float((run(images).argmax(axis=1) == labels).mean())


def scaled(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Pixels 0 .. 16 as the model reads them, of any shape."""
    return pixels.astype(np.float32) / np.float32(BRIGHTEST)


def dense_model(layers: Sequence[Layer]) -> ir.Model:
    """The network with ordinary weights: Gemm with transB, and Relu."""
    builder = GraphBuilder()
    weights = [builder.constant(f"layers.{i}.weight", layer.weight) for i, layer in enumerate(layers)]
    return _network(builder, weights, layers)


def compact_model(layers: Sequence[Layer]) -> ir.Model:
    """The same network with each weight as a weight-only subgraph of its nonzeros.

    `gaps` (uint8, from one stored value to the next in row-major order, the first from position 0) and `values`:
    ScatterElements(zeros, CumSum(gaps), values), reshaped to [outputs, inputs].
    """
    builder = GraphBuilder()
    weights = [_scattered(builder, layer.weight, f"layers.{i}") for i, layer in enumerate(layers)]
    return _network(builder, weights, layers)


def read_layers(model: ir.Model) -> tuple[Layer, ...]:
    """The layers of a `compact_model`, with dense weights."""
    stored = {name: value.const_value for name, value in model.graph.initializers.items()}
    arrays = {name: tensor.numpy() for name, tensor in stored.items() if tensor is not None}
    count = sum(name.endswith(".bias") for name in arrays)
    return tuple(_read_layer(arrays, f"layers.{i}") for i in range(count))


def _read_layer(arrays: Mapping[str, NDArray[Any]], name: str) -> Layer:
    weight = np.zeros(arrays[f"{name}.shape"], dtype=np.float32)
    positions = np.cumsum(arrays[f"{name}.gaps"], dtype=np.int64)
    weight.reshape(-1)[positions] = arrays[f"{name}.values"]
    return Layer(weight, arrays[f"{name}.bias"].astype(np.float32))


def _network(builder: GraphBuilder, weights: Sequence[ir.Value], layers: Sequence[Layer]) -> ir.Model:
    value = builder.input("x", ("batch", layers[0].weight.shape[1]))
    for i, (weight, layer) in enumerate(zip(weights, layers, strict=True)):
        bias = builder.constant(f"layers.{i}.bias", layer.bias)
        value = builder.op("Gemm", [value, weight, bias], f"/layers.{i}/Gemm", {"transB": 1})
        if i < len(layers) - 1:
            value = builder.op("Relu", [value], f"/layers.{i}/Relu")
    return builder.model("digits", {"logits": Output(value, ("batch", len(layers[-1].bias)))})


def _scattered(builder: GraphBuilder, weight: NDArray[np.float32], name: str) -> ir.Value:
    import onnx_ir as ir

    positions = _bridged(np.flatnonzero(weight))
    gaps = np.diff(positions, prepend=0).astype(np.uint8)
    zero = np.array([weight.size], dtype=np.int64)
    zeros = builder.op("ConstantOfShape", [builder.constant(f"{name}.size", zero)], f"/{name}/ConstantOfShape")
    wide = builder.op("Cast", [builder.constant(f"{name}.gaps", gaps)], f"/{name}/Cast", {"to": ir.DataType.INT32})
    axis = builder.constant(f"{name}.axis", np.array(0, dtype=np.int64))
    indices = builder.op("CumSum", [wide, axis], f"/{name}/CumSum")
    values = builder.constant(f"{name}.values", weight.reshape(-1)[positions])
    flat = builder.op("ScatterElements", [zeros, indices, values], f"/{name}/ScatterElements")
    shape = builder.constant(f"{name}.shape", np.array(weight.shape, dtype=np.int64))
    return builder.op("Reshape", [flat, shape], f"/{name}/Reshape")


def _bridged(positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The positions and as many between them that no gap, the first from 0, is wider than a byte holds."""
    gaps = np.diff(positions, prepend=0)
    bridges: list[NDArray[np.int64]] = [
        np.arange(position - gap + _WIDEST_GAP, position, _WIDEST_GAP)
        for position, gap in zip(positions[gaps > _WIDEST_GAP], gaps[gaps > _WIDEST_GAP], strict=True)
    ]
    return np.sort(np.concatenate([positions, *bridges])).astype(np.int64)
