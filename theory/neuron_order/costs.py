"""Predicted times of a network's layers under an order of its neurons, and what a search of positions needs of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...kernels.families import FAMILIES
from ...kernels.formats import permute_lookup
from ...kernels.layer_with_pattern import LayerWithPattern
from ...kernels.machine import Machine
from ...kernels.prediction import candidates, predicted_us, segment_us
from ...kernels.tile_widths import WIDTHS
from ...kernels.work import Layer
from ...sparse.csr import CsrPattern
from .neuron_groups import GroupedWeight, NeuronGroups
from .views import View

Indices = NDArray[np.int64]
Times = Mapping[int, float]
"""Microseconds by batch."""

SCALE: Final = 1e12
"""Prices are whole numbers: shares of the time of the network in so many parts."""


@dataclass(frozen=True, eq=False)
class OrderCosts:
    """The costs of the weights of `groups`, which `layers` describe but for the order; other layers cost the same."""

    groups: NeuronGroups
    layers: tuple[Layer, ...]
    machine: Machine
    batches: tuple[int, ...]
    _known: dict[tuple[int, bytes], Times] = field(default_factory=dict[tuple[int, bytes], Times])

    def times(self, positions: Indices) -> dict[int, float]:
        """Return the microseconds of all weights together for each batch."""
        per_weight = [self.weight_times(number, positions) for number in range(len(self.layers))]
        return {batch: sum(times[batch] for times in per_weight) for batch in self.batches}

    def weight_times(self, number: int, positions: Indices) -> Times:
        """Return the microseconds of one weight for each batch."""
        weight = self.groups.weights[number]
        key = number, positions[weight.inputs.neurons].tobytes() + positions[weight.outputs.neurons].tobytes()
        if key not in self._known:
            layer = self.ordered(number, positions)
            self._known[key] = {batch: self.fastest(layer, batch)[2] for batch in self.batches}
        return self._known[key]

    def ordered(self, number: int, positions: Indices) -> LayerWithPattern:
        """Return a weight's layer as it is when the neurons have `positions`."""
        layer, rows = self.layers[number], self.groups.weights[number].ordered(positions)
        counts = np.diff(rows.pointers)
        return LayerWithPattern(layer.inputs, counts, layer.other_bytes, layer.stored, layer.panel_reads, rows)

    def fastest(self, layer: Layer, batch: int) -> tuple[str, int, float]:
        """Return the family that is predicted to be the fastest for a batch, its tiles' width, and the microseconds."""
        width = max([width for width in WIDTHS if width <= batch] or WIDTHS[:1])
        families = candidates(layer, width, self.machine)
        times = {family: predicted_us(family, layer, width, self.machine) for family in families}
        best = min(times, key=times.__getitem__)
        return best, width, times[best] * -(-batch // width)

    def views(self, group: int, positions: Indices) -> list[View]:
        """Return how the kernels of all weights read the neurons of a group, with prices in parts of the total time.

        The neurons are numbered by their positions.
        """
        totals = self.times(positions)
        found: list[View] = []
        for number, weight in enumerate(self.groups.weights):
            for start in _starts(weight, self.groups, group):
                layer = self.ordered(number, positions)
                size = int(self.groups.starts[group + 1] - self.groups.starts[group])
                found += self._views_of(layer, start, size, totals)
        return found

    def _views_of(self, layer: LayerWithPattern, start: int, size: int, totals: Times) -> list[View]:
        views: list[View] = []
        rows = layer.rows
        assert rows is not None
        own = _between(rows, start, start + size)
        panels, none = permute_lookup.panels_of(rows), np.zeros(0, dtype=np.int64)
        for batch in self.batches:
            family, width, time = self.fastest(layer, batch)
            tiles = -(-batch // width)
            visits, rule = permute_lookup.visits_of(rows), FAMILIES[family].block_rule
            if FAMILIES[family] is permute_lookup.FAMILY and visits:
                price = permute_lookup.visits_exponent(layer) * time / (2 * visits) / totals[batch] * SCALE
                inputs = permute_lookup.BLOCK
                views.append(View(own, start % inputs, inputs, panels, 1, max(1, round(price))))
            elif rule is not None:
                segment, blocks = rule.most_in_segment, layer.blocks(rule)
                block = -(-layer.inputs // blocks)
                segments = layer.segments(blocks, segment)
                price = tiles * segment_us(family, layer, width, self.machine) / segments / totals[batch] * SCALE
                if blocks > 1:
                    views.append(View(own, start % block, block, none, segment, max(1, round(price))))
        return views


def _starts(weight: GroupedWeight, groups: NeuronGroups, group: int) -> list[int]:
    """Return the inputs of a weight at which a group starts."""
    neurons = weight.inputs.neurons
    return np.unique(weight.inputs.starts[groups.group_of[neurons] == group]).tolist()


def _between(rows: CsrPattern, start: int, end: int) -> CsrPattern:
    """Return what rows read between two inputs, counted from the first."""
    kept = (rows.indices >= start) & (rows.indices < end)
    ends = np.append(0, np.cumsum(kept))
    return CsrPattern(ends[rows.pointers], rows.indices[kept] - start, end - start)
