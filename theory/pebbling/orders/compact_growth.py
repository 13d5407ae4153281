"""Compact Growth: networks whose inference moves every value once, grown along the order in which they run.

At most Mg - 2 neurons are resident. A new neuron takes its incoming connections from residents only, one after the
other, and becomes resident; neurons that retire never return. While it grows, Mg - 1 slots hold the residents and the
new neuron, one the weight. No value is evicted while it is live, under any policy, for every M >= Mg: reads are W + N,
writes S.

Source: the idea of such a generator is in the abstract of Gleinig, Ben-Nun, Hoefler, arXiv 2301.01048; this one is
derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph, id_array


class GrownNetwork(NamedTuple):
    """A network, and the connection order, shape [W], that meets its lower bound."""

    network: NeuronGraph
    order: NDArray[np.int64]


def grow_layers(widths: Sequence[int], density: float, capacity: int, rng: np.random.Generator) -> GrownNetwork:
    """A sparse multilayer perceptron of these widths, neurons numbered layer by layer.

    A window of resident neurons slides over every layer but the last. Neuron i of the next layer takes max(1, density *
    width) sources in its window; a source about to leave the window unused is taken first, so every neuron
    is used and some neurons may have more sources. The layers run interleaved, each only as far as the next one needs.

    Args:
        widths: neurons of each layer, inputs first.
        density: connections of a neuron over the width before it, in (0, 1].
        capacity: Mg in values; the windows share Mg - 2.
        rng: source of randomness.

    Raises:
        ValueError: Mg < 3, fewer than two layers, a width below 1, a density outside (0, 1] or too large for Mg.
    """
    if capacity < 3:
        raise ValueError(f"expected a fast memory of 3 values or more, got {capacity}")
    if not 0 < density <= 1:
        raise ValueError(f"expected a density above 0, at most 1, got {density}")
    if len(widths) < 2 or min(widths) < 1:
        raise ValueError(f"widths {list(widths)} need two layers and a neuron in each")
    layers = _Layers(widths, density, _windows(widths, density, capacity - 2), rng)
    for neuron in range(widths[-1]):
        layers.grow(len(widths) - 1, neuron)
    is_source = np.arange(sum(widths), dtype=np.int64) < sum(widths[:-1])
    return _grown(layers.pairs, is_source, widths[0])


class _Layers:
    """The neurons that exist so far of each layer, and the connections in the order in which they grew."""

    def __init__(self, widths: Sequence[int], density: float, windows: list[int], rng: np.random.Generator) -> None:
        self._widths = widths
        self._density = density
        self._windows = windows
        self._rng = rng
        self._firsts: list[int] = [0, *np.cumsum(widths).tolist()]
        self._grown = [widths[0]] + [0] * (len(widths) - 1)
        self._used = np.zeros(self._firsts[-1], dtype=np.bool_)
        self.pairs: list[tuple[int, int]] = []

    def grow(self, layer: int, neuron: int) -> None:
        """Grow one neuron of a layer, and before it what its window needs; each layer calls the one before it."""
        start = self._window_start(layer, neuron)
        end = start + self._windows[layer - 1]
        while self._grown[layer - 1] < end:
            self.grow(layer - 1, self._grown[layer - 1])
        is_last = neuron == self._widths[layer] - 1
        leaves = end if is_last else self._window_start(layer, neuron + 1)
        first = self._firsts[layer - 1]
        leaving = [source for source in range(start, leaves) if not self._used[first + source]]
        others = np.setdiff1d(np.arange(start, end), leaving)
        missing = max(0, max(1, round(self._density * self._widths[layer - 1])) - len(leaving))
        drawn = self._rng.choice(others, size=min(missing, len(others)), replace=False).tolist()
        sources = [first + source for source in sorted([*leaving, *drawn])]
        self._used[sources] = True
        self.pairs += [(source, self._firsts[layer] + neuron) for source in sources]
        self._grown[layer] += 1

    def _window_start(self, layer: int, neuron: int) -> int:
        """First source of a neuron's window; the windows of a layer cover all sources."""
        room = self._widths[layer - 1] - self._windows[layer - 1]
        return neuron * room // max(1, self._widths[layer] - 1)


def _windows(widths: Sequence[int], density: float, room: int) -> list[int]:
    """Windows as wide as density and cover of each layer need; what is left goes to the relatively narrowest."""
    windows = [max(1, round(density * width), -(-width // after)) for width, after in pairwise(widths)]
    if sum(windows) > room:
        raise ValueError(f"windows of {windows} neurons need a memory of {sum(windows) + 2} values, not {room + 2}")
    for _ in range(min(room, sum(widths[:-1])) - sum(windows)):
        shares = [window / width for window, width in zip(windows, widths, strict=False)]
        windows[shares.index(min(shares))] += 1
    return windows


def _grown(pairs: list[tuple[int, int]], is_source: NDArray[np.bool_], input_count: int) -> GrownNetwork:
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    outputs = id_array(np.flatnonzero(~is_source))
    network = NeuronGraph(
        neuron_count=len(is_source),
        sources=ends[:, 0].copy(),
        targets=ends[:, 1].copy(),
        inputs=np.arange(input_count, dtype=np.int64),
        outputs=outputs[outputs >= input_count],
    )
    return GrownNetwork(network, np.arange(len(ends), dtype=np.int64))
