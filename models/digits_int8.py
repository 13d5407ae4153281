"""The digits classifier, quantized statically to eight bits as quantizers write it: nodes that quantize and dequantize.

Weights are signed, a scale an output; activations are unsigned. Codes cannot go below 0, so a Relu needs no
node. The scales of activations come from the greatest values on training images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from .digits import Layer, compact_digits, digits_record, read_layers
from .graph_builder import GraphBuilder, Output

if TYPE_CHECKING:
    import onnx_ir as ir

GREATEST_WEIGHT: Final = 127
GREATEST_CODE: Final = 255


@dataclass(frozen=True)
class DigitsInt8:
    """The `digits` classifier with weights and activations of eight bits (QDQ, per output); a seed changes nothing."""

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, 64] -> logits [batch, 10]."""
        del rng
        return quantized_model(read_layers(compact_digits()), digits_record()["greatest_inputs"])


def quantized_model(layers: Sequence[Layer], greatest_inputs: Sequence[float]) -> ir.Model:
    """The network, given the greatest input of each layer; inputs are not negative."""
    builder = GraphBuilder()
    zero = builder.constant("zero", np.array(0, np.uint8))
    value = builder.input("x", ("batch", layers[0].weight.shape[1]))
    for index, (layer, greatest) in enumerate(zip(layers, greatest_inputs, strict=True)):
        name, input_scale = f"layers.{index}", np.float32(greatest / GREATEST_CODE)
        value = _rounded(builder, value, input_scale, zero, name)
        value = _linear(builder, value, layer, input_scale, name)
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
