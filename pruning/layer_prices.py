"""Predicted times of layers by density, from the chooser of `optimize`; a layer that would stay dense has none.

A convolution has the times of its tiles of pixels, and of the values that it copies and moves.

A mask that is not there yet is taken to be spread evenly over inputs and outputs where its structure does that. Of
other structures a mask is made, of random scores: outputs that share inputs have kernels of their own. What the clock
finds of a few layers corrects all times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from ..dialect.ops.constants import SparseConstantOp
from ..kernels.dense_convolutions import dense_image_us
from ..kernels.dense_work import dense_us, runtime_us
from ..kernels.image_prices import COPIED_US, MOVED_US, image_shares, machine_of_images
from ..kernels.machine import Machine
from ..kernels.prediction import tiled_us
from ..kernels.tile_widths import PIXELS, image_tiles, image_widths
from ..kernels.work import Layer
from ..passes.analysis.block_choices import with_blocks
from ..passes.analysis.layer_costs import layers_of
from ..passes.kernels.choose_kernels import fastest_families
from ..passes.kernels.discover_structure import DiscoverStructure
from ..passes.kernels.kernels_at_rows import ChosenKernels, gains
from ..sparse.csr import CscMatrix, stored_bytes
from .layers import PrunableLayer
from .options import PruneOptions
from .runs.call_sizes import CallSizes, ImageSizes
from .runs.timing import MeasuredTimes
from .windows import Window

# Corrections of predicted times by the clock: measured over predicted, for a layer that is dense and at densities.

ANCHORS: Final = ((0.1,), (0.25,), (0.5, 0.4, 0.35, 0.3))
"""Densities at which layers are measured, of each choice the first that is predicted to gain anything; between two of
them corrections are interpolated."""

UNEVEN_ANCHORS: Final = ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,))
"""The same where outputs share inputs: which kernel is the fastest changes more often."""


@dataclass(frozen=True)
class Correction:
    """Measured over predicted time of a layer that stays dense, and of one at ascending densities."""

    dense: float = 1.0
    densities: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()

    def of_density(self, density: float) -> float:
        """Return the factor at a density: geometric between those known, and like them beyond."""
        if not self.densities:
            return self.dense
        known, factors = (np.log(np.array(values, np.float64)) for values in (self.densities, self.factors))
        return float(np.exp(np.interp(float(np.log(density)), known, factors)))


UNCORRECTED: Final = Correction()


@dataclass(frozen=True)
class Anchor:
    """A density of a layer, its predicted microseconds, and what was measured."""

    density: float
    predicted_us: float
    measured: MeasuredTimes


def correction_of(dense_us: float, anchors: Sequence[Anchor]) -> Correction:
    """Return the correction of a layer's predicted times by one or more measurements.

    The shortest time of the dense layer counts, and sparse ones by their ratio to it in the same rounds: a machine that
    others disturb is slower for both.
    """
    original = min(one.measured.original_us for one in anchors)
    ordered = sorted(anchors, key=lambda one: one.density)
    factors = tuple(original / (one.measured.speedup * one.predicted_us) for one in ordered)
    return Correction(original / dense_us, tuple(one.density for one in ordered), factors)


GRID: Final = tuple(float(density) for density in np.geomspace(0.05, 0.6, 33).round(4))
"""Densities that are weighed against each other, beside 1: each takes about 8 % longer than the one before."""

WORTHWHILE: Final = 0.97
"""Time of a sparse layer over that of the dense one below which it is an option."""


class Kind(NamedTuple):
    """The properties of a layer that its time depends on."""

    inputs: int
    outputs: int
    window: Window | None
    rows: int
    """Rows of a thread, of a layer that is no convolution."""
    images: ImageSizes | None


class LayerPrices:
    """Microseconds of layers for the rows and images of a call, on one of several threads."""

    def __init__(
        self, layers: Sequence[PrunableLayer], options: PruneOptions, call: CallSizes, machine: Machine
    ) -> None:
        self._call = call
        self._size = sum(map(self._read, layers))
        self._threads = options.threads
        self._structure = options.chosen_structure
        self._machine = machine
        self._known: dict[tuple[Kind, float], float | None] = {}
        self._corrections: Mapping[Kind, Correction] = MappingProxyType({})

    def correct(self, corrections: Mapping[Kind, Correction]) -> None:
        """Let all times be corrected from now on."""
        self._corrections = corrections

    def kind_of(self, layer: PrunableLayer) -> Kind:
        """Return the properties that the time of a layer depends on."""
        rows = -(-self._call.rows_by_layer.get(layer.name, 0) // self._threads)
        return Kind(layer.inputs, layer.outputs, layer.window, rows, self._call.images.get(layer.name))

    def work_of(self, layer: PrunableLayer) -> float:
        """Return the multiply-adds of the dense layer in a call, in any unit."""
        kind = self.kind_of(layer)
        return layer.size * (kind.rows if kind.images is None else kind.images.number * prod(kind.images.places))

    def dense_us(self, layer: PrunableLayer) -> float:
        """Return the microseconds of a layer that stays dense, and with the runtime."""
        return self._correction(layer).dense * self._dense_us(layer)

    def sparse_us(self, layer: PrunableLayer, density: float) -> float | None:
        """Return the microseconds of a layer at a density; None where it would stay dense, or gain nothing."""
        predicted = self.predicted_us(layer, density)
        if predicted is None:
            return None
        us = predicted * self._correction(layer).of_density(density)
        return us if us < WORTHWHILE * self.dense_us(layer) else None

    def predicted_us(self, layer: PrunableLayer, density: float) -> float | None:
        """Return the microseconds without any correction; None where it would stay dense."""
        key = (self.kind_of(layer), density)
        if key not in self._known:
            self._known[key] = self._predicted(layer, density)
        return self._known[key]

    def _correction(self, layer: PrunableLayer) -> Correction:
        return self._corrections.get(self.kind_of(layer), UNCORRECTED)

    def _dense_us(self, layer: PrunableLayer) -> float:
        _, _, _, rows, images = self.kind_of(layer)
        if images is not None and layer.window is not None:
            axes, product = layer.window.axes(images.sizes), dense_us(PIXELS, self._machine)
            us = dense_image_us(layer.size, axes, product, self._machine, 4.0 * self._size)
            return image_shares(self._machine).dense * images.number / self._threads * us
        other = 4.0 * (self._size - self._read(layer))
        return runtime_us(layer.inputs, layer.outputs, rows, self._machine, other)

    def _read(self, layer: PrunableLayer) -> int:
        """Return the weights of a layer without those of taps that read pads alone, as at the edges of tiny images."""
        if layer.window is None or layer.name not in self._call.images:
            return layer.size
        axes = layer.window.axes(self._call.images[layer.name].sizes)
        return layer.size // prod(axis.taps for axis in axes) * prod(axis.read_taps for axis in axes)

    def _predicted(self, layer: PrunableLayer, density: float) -> float | None:
        # the other layers are taken to be about as sparse
        others = self._size - self._read(layer)
        other = stored_bytes(density * others, others)
        if layer.window is not None:
            read = replace(layer, inputs=self._read(layer) // layer.outputs)
            return self._convolution_us(read, self._connections(read, density, other))
        rows, (_, times) = (
            self.kind_of(layer).rows,
            with_blocks(self._connections(layer, density, other), {}, self._machine, {}),
        )
        families = fastest_families(times)
        predicted = {width: times.predicted[width][family] for width, family in families.items()}
        kernels = ChosenKernels(layer.inputs, layer.outputs, families, predicted, 4.0 * others)
        # what `optimize` leaves to the runtime the clock would correct in vain
        taken = gains(kernels, [rows], self._machine)
        return kernels.times([rows], self._machine)[rows] if taken else None

    def _connections(self, layer: PrunableLayer, density: float, other_bytes: float) -> Layer:
        """Return a layer as its cost sees it once it is pruned."""
        if self._structure.is_even:
            counts = np.full(layer.outputs, max(1, round(density * layer.inputs)), dtype=np.int64)
            return Layer(layer.inputs, counts, other_bytes)
        scores = np.random.default_rng(0).random((layer.inputs, layer.outputs), dtype=np.float32)
        mask = self._structure.choose(scores, density)
        constant = SparseConstantOp(CscMatrix.from_dense(mask.astype(np.float32)))
        holder = ModuleOp([constant])
        DiscoverStructure().apply(Context(), holder)
        (found,) = layers_of([constant.result])
        return replace(found, other_bytes=other_bytes)

    def _convolution_us(self, layer: PrunableLayer, connections: Layer) -> float:
        number, values, _, places = self._call.images[layer.name]
        tiles = partial(image_tiles, prod(places[:-1]), places[-1])
        widths = image_widths(tiles, self._machine.lanes)
        reading = machine_of_images(self._machine)
        times = {one: tiled_us(connections, one, tiles(one), reading).values() for one in widths}
        us, width = min((tiles(one) * min(some), one) for one, some in times.items())
        shares = image_shares(self._machine)
        if layer.window is not None and prod(layer.window.kernel) > 1:
            us += shares.values * COPIED_US * layer.inputs * width * tiles(width)
        if layer.window is not None and any(stride > 1 for stride in layer.window.strides):
            us += shares.values * MOVED_US * values
        return us * number / self._threads
