"""Single layers with random weights: the shapes, sparsities and batches of the targets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...models.graph_builder import GraphBuilder, Output
from ...models.pruned_weights import random_bias, random_weight
from ...models.zoo import save

Floats = NDArray[np.float32]

SHAPES: Final = ((768, 768), (1024, 1024), (768, 3072), (3072, 768), (4096, 4096))
"""(inputs, outputs)."""

SPARSITIES: Final = (0.7, 0.8, 0.9, 0.95, 0.99)
BATCHES: Final = (1, 8, 32, 128, 512)


@dataclass(frozen=True)
class RandomLayer:
    """A layer of `inputs` and `outputs` neurons in which a connection is missing with probability `sparsity`."""

    inputs: int
    outputs: int
    sparsity: float

    @property
    def name(self) -> str:
        """Return shape and sparsity, such as 768x3072@0.9."""
        return f"{self.inputs}x{self.outputs}@{self.sparsity:g}"

    def weight(self) -> Floats:
        """Return the weight [outputs, inputs], always the same one."""
        return random_weight(self.outputs, self.inputs, 1.0 - self.sparsity, np.random.default_rng(0))

    def save(self, folder: Path) -> Path:
        """Write the layer as a model x [batch, inputs] -> y [batch, outputs] into `folder`, and return its path."""
        builder = GraphBuilder()
        x = builder.input("x", ("batch", self.inputs))
        y = builder.linear(x, self.weight(), random_bias(self.outputs, np.random.default_rng(1)), "layer")
        path = folder / f"{self.name}.onnx"
        save(builder.model("layer", {"y": Output(y, ("batch", self.outputs))}), path)
        return path


def random_layers(sparsities: tuple[float, ...], shapes: tuple[tuple[int, int], ...] = SHAPES) -> list[RandomLayer]:
    """Return the layers of all shapes and sparsities."""
    return [RandomLayer(*shape, sparsity) for shape in shapes for sparsity in sparsities]
