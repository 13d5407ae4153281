"""Compact Growth networks: sparse MLPs whose inference is known to need no more transfers than the lower bound."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from .graph_builder import GraphBuilder, Output
from .pruned_weights import masked_weight, random_bias
from .recipe import require_at_least, require_density

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class Compact:
    """Sparse MLP of these `widths`, grown so that inference with `memory` values of fast memory is I/O-optimal.

    Every layer looks at a sliding window of the one before it. With a batch of one and any larger memory, the order in
    which the network grew reads each weight, bias and input once and writes each output once. Relu between layers.
    """

    widths: tuple[int, ...] = (256, 256, 256, 64)
    density: float = 0.1
    memory: int = 128

    def __post_init__(self) -> None:
        """Check the parameters; whether the windows fit into `memory` is checked when the network is grown."""
        require_at_least(3, memory=self.memory)
        require_density(self.density)

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, first width] -> y [batch, last width].

        Raises:
            ValueError: fewer than two widths, a width below 1, or a memory too small for the density.
        """
        from ..theory.pebbling.orders.compact_growth import grow_layers

        try:
            network = grow_layers(self.widths, self.density, self.memory, rng).network
        except ValueError as error:
            raise ValueError(f"compact: {error}") from None
        firsts = np.cumsum((0, *self.widths))
        builder = GraphBuilder()
        value = builder.input("x", ("batch", self.widths[0]))
        for layer, (input_count, output_count) in enumerate(pairwise(self.widths)):
            chosen = (network.targets >= firsts[layer + 1]) & (network.targets < firsts[layer + 2])
            mask = np.zeros((output_count, input_count), dtype=np.bool_)
            mask[network.targets[chosen] - firsts[layer + 1], network.sources[chosen] - firsts[layer]] = True
            weight = masked_weight(mask, rng)
            value = builder.linear(value, weight, random_bias(output_count, rng), f"layers.{layer}")
            if layer < len(self.widths) - 2:
                value = builder.op("Relu", [value], f"/layers.{layer}/Relu")
        return builder.model("compact", {"y": Output(value, ("batch", self.widths[-1]))})
