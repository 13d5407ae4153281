"""The digits classifier, quantized statically to eight bits as quantizers write it: nodes that quantize and dequantize.

Weights are signed, a scale an output; activations are unsigned. A Relu is what the least code of its layer says, so
that none stands there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from redpebble.models.digits import Layer, compact_digits, digits_test_set, read_layers
from redpebble.models.graph_builder import GraphBuilder, Output

if TYPE_CHECKING:
    import onnx_ir as ir

GREATEST_WEIGHT: Final = 127
GREATEST_CODE: Final = 255

SAMPLES: Final = 64
"""Held-out images whose greatest values give the scales of activations; labels take no part."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class DigitsInt8:
    """The `digits` classifier with weights and activations of eight bits (QDQ, per output); a seed changes nothing."""

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, 64] -> logits [batch, 10]."""
        del rng
        layers = read_layers(compact_digits())
        return quantized_model(layers, digits_test_set().images[:SAMPLES])


def quantized_model(layers: Sequence[Layer], samples: Floats) -> ir.Model:
    """The network with the scales that samples [count, inputs] of its inputs, which are not negative, ask for."""
    builder = GraphBuilder()
    zero = builder.constant("zero", np.array(0, np.uint8))
    value, floats = builder.input("x", ("batch", samples.shape[1])), samples
    for index, layer in enumerate(layers):
        name, input_scale = f"layers.{index}", np.float32(floats.max() / GREATEST_CODE)
        value = _rounded(builder, value, input_scale, zero, name)
        value = _linear(builder, value, layer, input_scale, name)
        floats = np.maximum(floats @ layer.weight.T + layer.bias, np.float32(0))
    return builder.model("digits_int8", {"logits": Output(value, ("batch", layers[-1].bias.size))})


def _rounded(builder: GraphBuilder, value: ir.Value, scale: np.float32, zero: ir.Value, name: str) -> ir.Value:
    operands = [builder.constant(f"{name}.input_scale", np.array(scale)), zero]
    codes = builder.op("QuantizeLinear", [value, *operands], f"/{name}/input/QuantizeLinear")
    return builder.op("DequantizeLinear", [codes, *operands], f"/{name}/input/DequantizeLinear")


def _linear(builder: GraphBuilder, value: ir.Value, layer: Layer, input_scale: np.float32, name: str) -> ir.Value:
    scale = np.abs(layer.weight).max(axis=1) / np.float32(GREATEST_WEIGHT)
    scale = np.where(scale > 0, scale, np.float32(1)).astype(np.float32)
    sums = input_scale * scale
    arrays = {
        "weight": (np.rint(layer.weight / scale[:, None]).astype(np.int8), scale, np.int8),
        "bias": (np.rint(layer.bias / sums).astype(np.int32), sums, np.int32),
    }
    operands = [value]
    for part, (codes, steps, kind) in arrays.items():
        constants = [
            builder.constant(f"{name}.{part}{word}", array)
            for word, array in (("", codes), ("_scale", steps), ("_zero", np.zeros(steps.size, kind)))
        ]
        operands.append(builder.op("DequantizeLinear", constants, f"/{name}/{part}/DequantizeLinear", {"axis": 0}))
    return builder.op("Gemm", operands, f"/{name}/Gemm", {"transB": 1})
