"""Predicted times of layers by density, from the chooser that `optimize` asks; none for one that it would leave dense.

A convolution has the times of its tiles of pixels, and of the values that it copies and moves.

A mask that is not there yet is taken to be spread evenly over inputs and outputs, as that of equal counts is.
"""

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from redpebble.kernels.dense_work import dense_us
from redpebble.kernels.families import is_dense
from redpebble.kernels.machine import Machine
from redpebble.kernels.prediction import candidates, predicted_us
from redpebble.kernels.tile_widths import PIXELS, WIDTHS, time_of_rows
from redpebble.kernels.work import Layer
from redpebble.passes.analysis.block_choices import with_blocks
from redpebble.passes.images.image_layers import COPIED_US, MOVED_US
from redpebble.passes.kernels.choose_kernels import fastest_families
from redpebble.passes.kernels.kernels_at_rows import families_at
from redpebble.pruning.layers import PrunableLayer
from redpebble.pruning.options import PruneOptions
from redpebble.pruning.runs.first_run import FirstRun
from redpebble.sparse.csr import CONNECTION_BYTES

GRID: Final = tuple(float(density) for density in np.geomspace(0.05, 0.6, 33).round(4))
"""Densities that are weighed against each other, beside 1: each takes about 8 % longer than the one before."""


class LayerPrices:
    """Microseconds of layers for a number of rows on one of several threads."""

    def __init__(
        self, layers: Sequence[PrunableLayer], options: PruneOptions, first: FirstRun, machine: Machine
    ) -> None:
        self._size = sum(layer.size for layer in layers)
        self._rows = max(1, -(-options.rows // options.threads))
        self._first = first
        self._images = first.images_with(options.rows) / options.threads
        self._machine = machine
        self._known: dict[tuple[int, int, str, float], float | None] = {}

    def dense_us(self, layer: PrunableLayer) -> float:
        """Return the microseconds of a layer that stays dense."""
        if layer.name in self._first.images:
            places = prod(self._first.images[layer.name].places)
            return self._images * places * layer.size * dense_us(PIXELS, self._machine)
        other = 4.0 * (self._size - layer.size)
        dense = Layer(layer.inputs, np.full(layer.outputs, layer.inputs, np.int64), other, "dense")
        times = {
            width: min(predicted_us(name, dense, width, self._machine) for name in self._dense_families(dense, width))
            for width in WIDTHS
        }
        return time_of_rows(times, self._rows)

    def sparse_us(self, layer: PrunableLayer, density: float) -> float | None:
        """Return the microseconds of a layer at a density; None where it would stay dense."""
        key = (layer.inputs, layer.outputs, layer.name if layer.window else "", density)
        if key not in self._known:
            self._known[key] = self._predicted(layer, density)
        return self._known[key]

    def _predicted(self, layer: PrunableLayer, density: float) -> float | None:
        counts = np.full(layer.outputs, max(1, round(density * layer.inputs)), dtype=np.int64)
        # the other layers are taken to be about as sparse
        other = min(4.0, CONNECTION_BYTES * density) * (self._size - layer.size)
        if layer.window is not None:
            us = self._convolution_us(layer, Layer(layer.inputs, counts))
            return us if us < self.dense_us(layer) else None
        _, times = with_blocks(Layer(layer.inputs, counts, other), {}, self._machine, {})
        families = fastest_families(times)
        predicted = {width: times.predicted[width][family] for width, family in families.items()}
        if any(map(is_dense, families_at(families, predicted, self._rows))):
            return None
        us = time_of_rows(predicted, self._rows)
        return us if us < self.dense_us(layer) else None

    def _convolution_us(self, layer: PrunableLayer, connections: Layer) -> float:
        values, _, places = self._first.images[layer.name]
        tiles = -(-prod(places[:-1]) * (places[-1] + 1) // PIXELS)
        families = candidates(connections, PIXELS, self._machine)
        us = tiles * min(predicted_us(family, connections, PIXELS, self._machine) for family in families)
        if layer.window is not None and prod(layer.window.kernel) > 1:
            us += COPIED_US * layer.inputs * PIXELS * tiles
        if layer.window is not None and any(stride > 1 for stride in layer.window.strides):
            us += MOVED_US * values
        return us * self._images

    def _dense_families(self, dense: Layer, width: int) -> list[str]:
        return [name for name in candidates(dense, width, self._machine) if is_dense(name)]
