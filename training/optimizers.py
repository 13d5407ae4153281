"""Optimizers on one flat array of values, which they change in place."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

OptimizerName = Literal["sgd", "adam", "lion"]

STABLE: Final = np.float32(1e-8)
"""Term that keeps Adam's quotients finite."""


class Optimizer(Protocol):
    """A rule for steps."""

    def update(self, values: Floats, gradient: Floats, rate: float) -> None:
        """Change values by their gradient; both arrays are [values], the second one may be changed as well."""


class Sgd:
    """Stochastic gradient descent with momentum 0.9 (Polyak 1964)."""

    def __init__(self, count: int) -> None:
        """Start at rest."""
        self._moved = np.zeros(count, np.float32)

    def update(self, values: Floats, gradient: Floats, rate: float) -> None:
        """Add the gradient to the momentum, and follow it."""
        self._moved *= np.float32(0.9)
        self._moved += gradient
        values -= np.multiply(self._moved, np.float32(rate), out=gradient)


class Adam:
    """Adam (Kingma and Ba 2015), with its usual 0.9 and 0.999."""

    def __init__(self, count: int) -> None:
        """Start with moments of zero."""
        self._first, self._second, self._scratch = (np.zeros(count, np.float32) for _ in range(3))
        self._steps = 0

    def update(self, values: Floats, gradient: Floats, rate: float) -> None:
        """Follow the mean gradient over the root of its mean square, both as if they had been averaged from 0 on."""
        self._steps += 1
        first, second, scratch = self._first, self._second, self._scratch
        first += np.multiply(np.subtract(gradient, first, out=scratch), np.float32(0.1), out=scratch)
        np.multiply(gradient, gradient, out=gradient)
        second += np.multiply(np.subtract(gradient, second, out=gradient), np.float32(0.001), out=gradient)
        np.sqrt(np.divide(second, np.float32(1 - 0.999**self._steps), out=scratch), out=scratch)
        scratch += STABLE
        np.divide(first, scratch, out=scratch)
        values -= np.multiply(scratch, np.float32(rate / (1 - 0.9**self._steps)), out=scratch)


class Lion:
    """Lion (Chen et al. 2023): steps of one size, by the sign of momentum and gradient; 0.9 and 0.99."""

    def __init__(self, count: int) -> None:
        """Start at rest."""
        self._moved, self._scratch = (np.zeros(count, np.float32) for _ in range(2))

    def update(self, values: Floats, gradient: Floats, rate: float) -> None:
        """Follow the sign, then let the gradient enter the momentum."""
        moved, scratch = self._moved, self._scratch
        np.multiply(np.subtract(gradient, moved, out=scratch), np.float32(0.1), out=scratch)
        scratch += moved
        values -= np.multiply(np.sign(scratch, out=scratch), np.float32(rate), out=scratch)
        moved += np.multiply(np.subtract(gradient, moved, out=scratch), np.float32(0.01), out=scratch)


OPTIMIZERS: Final[Mapping[OptimizerName, Callable[[int], Optimizer]]] = MappingProxyType(
    {"sgd": Sgd, "adam": Adam, "lion": Lion}
)
"""The optimizers by name."""
