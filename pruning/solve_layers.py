"""Layer after layer is pruned, each for the inputs that the layers before it now give, against the dense outputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .layers import PrunableLayer, Reading
from .runs.hessians import LayerInputs, layer_inputs
from .runs.traces import Trace, Weights
from .solving.few_bits import Grid
from .solving.methods import Method, Sparsity
from .solving.refit import loss_of, moved_target
from .solving.structures import Structure

Array = NDArray[np.float32]


@dataclass(frozen=True)
class SolvedLayer:
    """A pruned weight [inputs, outputs], and the share of the square of its layer's outputs that it loses alone."""

    layer: PrunableLayer
    weight: Array
    loss: float
    scales: Array | None = None
    """[groups, outputs] of a weight of four bits."""


@dataclass
class LayerSolver:
    """The two runs, of the dense model and of the pruned one, and the weights found until now."""

    trace: Trace
    dense: Weights
    method: Method
    structure: Structure
    whole: float = 1.0
    """Rows of all data over rows of the trace: layers are refused by the rows of all data."""
    grid: Grid | None = None
    """The values that weights of layers may have that MatMulNBits can compute."""

    def __post_init__(self) -> None:
        self.weights: dict[str, Array] = dict(self.dense)
        self.original: Trace | None = None
        """The run of the dense model; None as long as nothing is pruned."""

    def solve(self, densities: Mapping[str, float]) -> Iterator[SolvedLayer]:
        """Yield the layers that have a density below 1, pruned; both runs come up to the last of them.

        Raises:
            ValueError: a layer gets too few rows, or NaN or infinity.
        """
        left = {name for name, density in densities.items() if density < 1}
        while left:
            layers = [one for one in self.trace.model.segments[self.trace.done].layers if one.name in left]
            yield from self._stage(layers, densities)
            left -= {layer.name for layer in layers}
            if not left:
                # what is behind the last layer takes long: of a decoder it is the head, and all logits
                return
            if layers and self.original is None:
                self.original = self.trace.branch()
            if self.original is not None:
                self.original.advance(self.dense)
            self.trace.advance(self.weights)

    def _stage(self, layers: Sequence[PrunableLayer], densities: Mapping[str, float]) -> Iterator[SolvedLayer]:
        known: dict[Reading, LayerInputs] = {}
        for layer in layers:
            if layer.reading not in known:
                known[layer.reading] = layer_inputs(layer, self.trace, self.original if self.method.refits else None)
            inputs, weight = known[layer.reading], self.dense[layer.name]
            rows = round(inputs.rows * self.whole)
            if self.method.reads_data and 2 * rows < layer.inputs:
                least = -(-layer.inputs // 2)
                raise ValueError(
                    f"layer {layer.name} of {layer.inputs} inputs: expected {least} rows of data or more, "
                    f"or --keep {layer.name}, got {rows}"
                )
            target = weight if inputs.crossed is None else moved_target(weight, inputs.hessian, inputs.crossed)
            pruned, scales = self._solved(layer, target, inputs.hessian, densities[layer.name])
            self.weights[layer.name] = pruned
            yield SolvedLayer(layer, pruned, loss_of(target, pruned, inputs.hessian), scales)

    def _solved(
        self, layer: PrunableLayer, target: Array, hessian: Array, density: float
    ) -> tuple[Array, Array | None]:
        sparsity = Sparsity(self.structure, density)
        if self.grid is None or not layer.takes_codes:
            found = self.method.solve(target, hessian, sparsity)
            # products with denormals would take a hundred times as long
            return np.where(np.abs(found) < np.finfo(np.float32).tiny, np.float32(0), found), None
        found = self.method.codes(target, hessian, sparsity, self.grid)
        return found.weight, found.scales
