"""Random feed-forward networks: plain, with prune masks still attached, and residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .graph_builder import GraphBuilder, Output
from .pruned_weights import masked_weight, random_bias, random_weight
from .recipe import require_at_least, require_density

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class Ffnn:
    """Random sparse MLP with Relu: `depth` layers of `width` neurons, a skip over every layer on request.

    Gemm and Relu as torch exports them; the last layer has no Relu.
    """

    depth: int = 4
    width: int = 500
    density: float = 0.1
    skip: bool = False

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_at_least(1, depth=self.depth, width=self.width)
        require_density(self.density)

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, width] -> y [batch, width]."""
        builder = GraphBuilder()
        dims = ("batch", self.width)
        value = builder.input("x", dims)
        for layer in range(self.depth):
            weight = random_weight(self.width, self.width, self.density, rng)
            before, value = value, builder.linear(value, weight, random_bias(self.width, rng), f"layers.{layer}")
            if layer < self.depth - 1:
                value = builder.op("Relu", [value], f"/layers.{layer}/Relu")
            if self.skip:
                value = builder.op("Add", [value, before], f"/layers.{layer}/Add")
        return builder.model("ffnn", {"y": Output(value, dims)})


@dataclass(frozen=True)
class MaskedMlp:
    """MLP exported with its prune masks still attached: every weight is a Mul of the dense weight and a mask.

    The weights look dense until weight-only subgraphs are folded.
    """

    depth: int = 3
    width: int = 256
    density: float = 0.1

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_at_least(1, depth=self.depth, width=self.width)
        require_density(self.density)

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, width] -> y [batch, width]."""
        builder = GraphBuilder()
        dims = ("batch", self.width)
        shape = (self.width, self.width)
        value = builder.input("x", dims)
        for layer in range(self.depth):
            name = f"layers.{layer}"
            mask = rng.random(shape) < self.density
            dense = np.where(mask, masked_weight(mask, rng), rng.standard_normal(shape, dtype=np.float32))
            factors = [
                builder.constant(f"{name}.weight_orig", dense),
                builder.constant(f"{name}.weight_mask", mask.astype(np.float32)),
            ]
            weight = builder.op("Mul", factors, f"/{name}/Mul")
            bias = builder.constant(f"{name}.bias", random_bias(self.width, rng))
            value = builder.op("Gemm", [value, weight, bias], f"/{name}/Gemm", {"transB": 1})
            value = builder.op("Tanh", [value], f"/{name}/Tanh")
        return builder.model("masked_mlp", {"y": Output(value, dims)})


@dataclass(frozen=True)
class ResMlp:
    """Residual MLP with LayerNormalization and Gelu; outputs features and class probabilities of two heads.

    A block is x + W2 gelu(W1 norm(x)), W1 twice as wide; the first head reads the middle of the network.
    """

    depth: int = 4
    width: int = 128
    density: float = 0.1

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_at_least(1, depth=self.depth, width=self.width)
        require_density(self.density)

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, width] -> features [batch, width], early and late [batch, 10]."""
        builder = GraphBuilder()
        dims = ("batch", self.width)
        values = [builder.input("x", dims)]
        for block in range(self.depth):
            values.append(self._block(builder, values[-1], f"blocks.{block}", rng))
        features = builder.layer_norm(values[-1], self.width, "norm")
        early = self._head(builder, values[(self.depth + 1) // 2], "early_head", rng)
        late = self._head(builder, features, "late_head", rng)
        outputs = {name: Output(value, ("batch", 10)) for name, value in (("early", early), ("late", late))}
        return builder.model("resmlp", {"features": Output(features, dims)} | outputs)

    def _block(self, builder: GraphBuilder, x: ir.Value, name: str, rng: np.random.Generator) -> ir.Value:
        inner = 2 * self.width
        value = builder.layer_norm(x, self.width, f"{name}.norm")
        expand = random_weight(inner, self.width, self.density, rng)
        value = builder.linear(value, expand, random_bias(inner, rng), f"{name}.expand")
        value = builder.op("Gelu", [value], f"/{name}/Gelu")
        contract = random_weight(self.width, inner, self.density, rng)
        value = builder.linear(value, contract, random_bias(self.width, rng), f"{name}.contract")
        return builder.op("Add", [x, value], f"/{name}/Add")

    def _head(self, builder: GraphBuilder, x: ir.Value, name: str, rng: np.random.Generator) -> ir.Value:
        weight = random_weight(10, self.width, 1.0, rng)
        value = builder.linear(x, weight, random_bias(10, rng), name)
        return builder.op("Softmax", [value], f"/{name}/Softmax", {"axis": -1})
