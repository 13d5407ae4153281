"""Predicted times of a module's layers on this machine's CPU, dense and at any density: those of `redpebble prune`.

The sizes of a call are those of a batch, scaled to so many rows of linear layers (samples, or all tokens), or, where
there are convolutions, to so many images.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..pruning.budgets import densities_of
from ..pruning.layer_prices import LayerPrices
from ..pruning.layers import PrunableLayer
from ..pruning.options import Goal, PruneOptions
from ..pruning.runs.call_sizes import CallSizes, ImageSizes
from ..pruning.solving import structures as of_arrays
from ..pruning.windows import Window
from ..runtime.jit import host_target
from ..tuning.machines import machine_for
from .batches import Module, Run, device_of, moved
from .layer_inputs import seeing
from .layers import PrunableWeight
from .structures import Structure, structure_of


class Call(NamedTuple):
    """A call that times are for."""

    rows: int | None
    """Rows of linear layers, or images where there are convolutions; None for 128 rows, or one image."""
    threads: int


class Prices:
    """Microseconds of layers by density, as predicted."""

    rows_of_batch: int
    """The rows, or images, of the first batch."""

    def __init__(
        self, layers: Mapping[str, PrunableLayer], structure: str | Structure, sizes: CallSizes, threads: int
    ) -> None:
        self.layers = layers
        self.rows = sizes.samples
        self._structure = _structure_of_arrays(structure)
        options = PruneOptions(Goal("speedup", 2.0), structure=self._structure, threads=threads)
        self._prices = LayerPrices(list(layers.values()), options, sizes, machine_for(host_target(), None))

    @staticmethod
    def of(
        module: nn.Module, weights: Sequence[PrunableWeight], run: Run, structure: str | Structure, call: Call
    ) -> "Prices":
        """Return the prices of a module's weights by the sizes of the first batch."""
        seen = _seen_by(module, weights, run)
        layers = {one.name: _layer(one) for one in weights if one.name in seen}
        of_batch = _rows_of(layers, seen)
        found = Prices(layers, structure, _call_sizes(layers, seen, of_batch, call.rows), call.threads)
        found.rows_of_batch = of_batch
        return found

    def dense_us(self, name: str) -> float:
        """Return the time of a layer that stays dense; 0 where it is never called."""
        return self._prices.dense_us(self.layers[name]) if name in self.layers else 0.0

    def us(self, name: str, density: float) -> float:
        """Return the time of a layer at a density: that of the dense one where zeros gain nothing."""
        if name not in self.layers or density >= 1:
            return self.dense_us(name)
        return self._prices.sparse_us(self.layers[name], density) or self.dense_us(name)

    def densities_of(self, name: str) -> list[float]:
        """Return the densities, descending, that make a layer faster."""
        return densities_of(self.layers[name], self._structure, self._prices) if name in self.layers else []


class _Seen(NamedTuple):
    """Calls of a layer in a run: how many samples, rows of all calls, and sizes of images."""

    samples: int
    rows: int
    sizes: tuple[int, ...]


def _seen_by(module: nn.Module, weights: Sequence[PrunableWeight], run: Run) -> dict[str, _Seen]:
    found: dict[str, _Seen] = {}

    def see(name: str, layer: nn.Module, x: Tensor) -> None:
        shape = x.shape
        axes = len(getattr(layer, "kernel_size", ()))
        before = found[name].rows if name in found else 0
        rows = before + prod(shape[: -1 - axes] if axes else shape[:-1])
        found[name] = _Seen(shape[0], rows, tuple(shape[len(shape) - axes :]) if axes else ())

    was_training = module.training
    module.eval()
    try:
        with seeing(module, weights, see), torch.no_grad():
            run.forward(module, moved(run.batches[0], device_of(module)))
    finally:
        module.train(was_training)
    return found


def _layer(weight: PrunableWeight) -> PrunableLayer:
    outputs, inputs = weight.live.shape
    return PrunableLayer(weight.name, 0, weight.name, weight.name, True, inputs, outputs, _window(weight.modules[0]))


def _window(module: Module) -> Window | None:
    if not isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return None
    convolution: Any = module
    kernel, strides, dilations = (tuple(getattr(convolution, name)) for name in ("kernel_size", "stride", "dilation"))
    if convolution.padding == "same":
        return Window(kernel, strides, dilations, (), "SAME_UPPER")
    pads = (0,) * len(kernel) if convolution.padding == "valid" else tuple(convolution.padding)
    return Window(kernel, strides, dilations, pads * 2)


def _rows_of(layers: Mapping[str, PrunableLayer], seen: Mapping[str, _Seen]) -> int:
    """Return the images of a run, or the rows of its first layer where there are no convolutions."""
    first = next((name for name, layer in layers.items() if layer.window is not None), None)
    return next(iter(seen.values())).rows if first is None else seen[first].samples


def _call_sizes(
    layers: Mapping[str, PrunableLayer], seen: Mapping[str, _Seen], of_batch: int, rows: int | None
) -> CallSizes:
    """Return the sizes of a run of a batch, scaled to a number of rows or images."""
    convolutions = [name for name, layer in layers.items() if layer.window is not None]
    wanted = rows or (1 if convolutions else 128)
    rows_by_layer = {
        name: max(1, round(one.rows * wanted / of_batch)) for name, one in seen.items() if name not in convolutions
    }
    images = dict[str, ImageSizes]()
    for name in convolutions:
        layer, sizes = layers[name], seen[name].sizes
        assert layer.window is not None
        values = layer.inputs // prod(layer.window.kernel) * prod(sizes)
        number = max(1, round(seen[name].samples * wanted / of_batch))
        images[name] = ImageSizes(number, values, sizes, layer.window.places(sizes))
    return CallSizes(wanted, rows_by_layer, images)


def _structure_of_arrays(text: str | Structure) -> of_arrays.Structure:
    """Return the structure of a name for arrays [inputs, outputs], which knows whether counts alone tell the time."""
    if isinstance(text, str) and (text in ("free", "equal") or text.startswith("n:")):
        return of_arrays.structure_of(text)
    found = structure_of(text)

    def choose(scores: of_arrays.Scores, density: float) -> of_arrays.Mask:
        return found.choose(torch.from_numpy(scores.T.copy()), density).numpy().T.copy()

    return of_arrays.Structure(choose, found.density)
