"""Features as weighted sums of neurons: what linear layers, residuals and scalings make before an activation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sums:
    """Features of `shape`; feature f is biases[f] + the sum of weights[e] * neuron sources[e] over features[e] = f."""

    shape: tuple[int, ...]
    features: Ids
    sources: Ids
    weights: Doubles
    biases: Doubles

    @staticmethod
    def copies(neurons: Ids) -> Sums:
        """Return each neuron as a sum of one connection of weight 1."""
        count = neurons.size
        return Sums(neurons.shape, np.arange(count), neurons.reshape(-1), np.ones(count), np.zeros(count))

    def scaled(self, factors: Doubles) -> Sums:
        """Return feature f times factors[f]."""
        return Sums(
            self.shape, self.features, self.sources, self.weights * factors[self.features], self.biases * factors
        )

    def plus(self, other: Sums) -> Sums:
        """Return the sums of two values of the same shape."""
        return Sums(
            self.shape,
            np.concatenate((self.features, other.features)),
            np.concatenate((self.sources, other.sources)),
            np.concatenate((self.weights, other.weights)),
            self.biases + other.biases,
        )

    def selected(self, chosen: Ids) -> Sums:
        """Return the features `chosen`, each at most once, in the shape of `chosen`."""
        place = np.full(len(self.biases), -1, dtype=np.int64)
        place[chosen.reshape(-1)] = np.arange(chosen.size)
        stays = place[self.features] >= 0
        entries = place[self.features[stays]], self.sources[stays], self.weights[stays]
        return Sums(chosen.shape, *entries, self.biases[chosen.reshape(-1)])

    @staticmethod
    def nothing(biases: Doubles, shape: tuple[int, ...]) -> Sums:
        """Return features without connections."""
        empty = np.zeros(0, dtype=np.int64)
        return Sums(shape, empty, empty, np.zeros(0), biases)

    def followed_by(self, other: Sums) -> Sums:
        """Return the features of both, one after the other along a single axis."""
        count = len(self.biases)
        return Sums(
            (count + len(other.biases),),
            np.concatenate((self.features, count + other.features)),
            np.concatenate((self.sources, other.sources)),
            np.concatenate((self.weights, other.weights)),
            np.concatenate((self.biases, other.biases)),
        )
