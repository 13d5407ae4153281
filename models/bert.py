"""The row-wise parts of a BERT-base encoder layer, with random pruned weights: a row is a token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from .graph_builder import GraphBuilder, Output
from .pruned_weights import random_bias, random_weight
from .recipe import require_density

if TYPE_CHECKING:
    import onnx_ir as ir

HIDDEN: Final = 768
INTERMEDIATE: Final = 3072


@dataclass(frozen=True)
class BertFfn:
    """Feed-forward block of BERT-base: 768 -> 3072 -> 768 with Gelu; a row of the batch is a token."""

    density: float = 0.1

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_density(self.density)

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, 768] -> y [batch, 768]."""
        layer = _Layer(GraphBuilder(), self.density, rng)
        dims = ("batch", HIDDEN)
        value = layer.feed_forward(layer.builder.input("x", dims))
        return layer.builder.model("bert_ffn", {"y": Output(value, dims)})


@dataclass(frozen=True)
class BertLayer:
    """Encoder layer of BERT-base without attention itself: projections, residuals, norms, feed-forward block.

    What lies between the projections and the output projection comes in as `context`, so every row is independent.
    """

    density: float = 0.1

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_density(self.density)

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: hidden, context [batch, 768] -> query, key, value, output [batch, 768]."""
        layer = _Layer(GraphBuilder(), self.density, rng)
        builder, dims = layer.builder, ("batch", HIDDEN)
        hidden, context = builder.input("hidden", dims), builder.input("context", dims)
        outputs = {part: layer.dense(hidden, HIDDEN, HIDDEN, f"attention.{part}") for part in ("query", "key", "value")}
        attended = layer.dense(context, HIDDEN, HIDDEN, "attention.output")
        residual = builder.op("Add", [attended, hidden], "/attention/output/Add")
        middle = builder.layer_norm(residual, HIDDEN, "attention.norm")
        residual = builder.op("Add", [layer.feed_forward(middle), middle], "/output/Add")
        outputs["output"] = builder.layer_norm(residual, HIDDEN, "output.norm")
        return builder.model("bert_layer", {name: Output(value, dims) for name, value in outputs.items()})


@dataclass(frozen=True)
class _Layer:
    builder: GraphBuilder
    density: float
    rng: np.random.Generator

    def dense(self, x: ir.Value, inputs: int, outputs: int, name: str) -> ir.Value:
        weight = random_weight(outputs, inputs, self.density, self.rng)
        return self.builder.projection(x, weight, random_bias(outputs, self.rng), name)

    def feed_forward(self, x: ir.Value) -> ir.Value:
        value = self.dense(x, HIDDEN, INTERMEDIATE, "intermediate.dense")
        value = self.builder.op("Gelu", [value], "/intermediate/Gelu")
        return self.dense(value, INTERMEDIATE, HIDDEN, "output.dense")
