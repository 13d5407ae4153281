"""Optimizers on one flat array of values, which they change in place."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from .direction_sums import DirectionSums
from .replicas import Replicas

Floats = NDArray[np.float32]

Places = NDArray[np.int64]

OptimizerName = Literal["sgd", "adam", "lion"]

STABLE: Final = np.float32(1e-8)
"""Term that keeps Adam's quotients finite."""


PART: Final = 1 << 14
"""Values that are changed at once: what is computed on the way stays in the cache."""


class Optimizer(ABC):
    """A rule for steps; a state of as many values goes with it."""

    def __init__(self, count: int, arrays: int) -> None:
        """Start with `arrays` arrays of zeros for so many values."""
        self._steps = 0
        self._scratch = np.empty(min(count, PART), np.float32)
        self._state = [np.zeros(count, np.float32) for _ in range(arrays)]

    def update(self, values: Floats, gradient: Floats, rate: float, scale: float = 1.0) -> None:
        """Change values [values] by their gradient [values] times a scale; the gradient is of no use afterwards."""
        self._steps += 1
        for start in range(0, len(values), PART):
            values_here, gradient_here, *state = (
                array[start : start + PART] for array in (values, gradient, *self._state)
            )
            gradient_here *= np.float32(scale)
            self._change(start, values_here, gradient_here, state, rate)

    @abstractmethod
    def _change(self, start: int, values: Floats, gradient: Floats, state: Sequence[Floats], rate: float) -> None:
        """Change some of the values, those from `start` on."""

    def _product(self, left: Floats, factor: float) -> Floats:
        """Return a product in the array for what is computed on the way."""
        return np.multiply(left, np.float32(factor), out=self._scratch[: len(left)])


class Sgd(Optimizer):
    """Stochastic gradient descent with momentum 0.9 (Polyak 1964)."""

    def __init__(self, count: int) -> None:
        """Start at rest."""
        super().__init__(count, 1)

    @override
    def _change(self, start: int, values: Floats, gradient: Floats, state: Sequence[Floats], rate: float) -> None:
        (moved,) = state
        moved *= np.float32(0.9)
        moved += gradient
        values -= self._product(moved, rate)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), with its usual 0.9 and 0.999."""

    def __init__(self, count: int) -> None:
        """Start with moments of zero."""
        super().__init__(count, 2)

    @override
    def _change(self, start: int, values: Floats, gradient: Floats, state: Sequence[Floats], rate: float) -> None:
        first, second = state
        first *= np.float32(0.9)
        first += self._product(gradient, 0.1)
        np.multiply(gradient, gradient, out=gradient)
        second *= np.float32(0.999)
        second += self._product(gradient, 0.001)
        deviation = np.sqrt(self._product(second, 1 / (1 - 0.999**self._steps)), out=gradient)
        deviation += STABLE
        step = np.divide(first, deviation, out=deviation)
        values -= self._product(step, rate / (1 - 0.9**self._steps))


class Lion(Optimizer):
    """Lion (Chen et al. 2023): steps of one size, by the sign of momentum and gradient; 0.9 and 0.99."""

    def __init__(self, count: int) -> None:
        """Start at rest."""
        super().__init__(count, 1)

    @override
    def _change(self, start: int, values: Floats, gradient: Floats, state: Sequence[Floats], rate: float) -> None:
        (moved,) = state
        direction = self._product(moved, 9.0)
        direction += gradient
        values -= np.multiply(np.sign(direction, out=direction), np.float32(rate), out=direction)
        moved *= np.float32(0.99)
        moved += self._product(gradient, 0.01)


class VotedLion(Optimizer):
    """Lion over replicas: each has its own momentum, and all take the same steps.

    A step is the majority of the replicas' steps, or, with `bits` of 2 or more, the sign of the sum of directions in as
    many bits. Source: distributed Lion (Liu et al. 2024) with the reductions of Lion Cub (Ishikawa et al. 2024): bits
    are exchanged in place of gradients, and momentum is averaged every `sync` steps, if at all: of all values, or of
    those at some places, such as the layers whose momentum differs most.
    """

    def __init__(
        self, count: int, replicas: Replicas, sync: int = 0, places: Places | None = None, bits: int = 1
    ) -> None:
        """Start at rest."""
        super().__init__(count, 1)
        self._replicas, self._sync = replicas, sync
        self._places = np.arange(count) if places is None else places
        self._directions = np.empty(count, np.float32)
        self._sums = DirectionSums(replicas, count, bits) if bits > 1 else None

    @override
    def update(self, values: Floats, gradient: Floats, rate: float, scale: float = 1.0) -> None:
        super().update(values, gradient, rate, scale)
        directions = self._directions
        if self._sums is None:
            packed = self._replicas.vote(np.packbits(directions > 0))
        else:
            packed = self._sums.signs(directions)
        voted = np.unpackbits(packed, count=len(values)).astype(np.float32)
        voted -= np.float32(0.5)
        values -= np.multiply(voted, np.float32(2 * rate), out=voted)
        if self._sync and self._steps % self._sync == 0:
            (moved,) = self._state
            chosen = moved[self._places]
            self._replicas.add(chosen)
            chosen *= np.float32(1 / self._replicas.size)
            moved[self._places] = chosen

    @override
    def _change(self, start: int, values: Floats, gradient: Floats, state: Sequence[Floats], rate: float) -> None:
        (moved,) = state
        direction = np.multiply(moved, np.float32(9), out=self._directions[start : start + len(values)])
        direction += gradient
        # a sign cannot say that a value is to stay: it goes back and forth
        direction[direction == 0] = STABLE if self._steps % 2 else -STABLE
        moved *= np.float32(0.99)
        moved += self._product(gradient, 0.01)


OPTIMIZERS: Final[Mapping[OptimizerName, Callable[[int], Optimizer]]] = MappingProxyType(
    {"sgd": Sgd, "adam": Adam, "lion": Lion}
)
"""The optimizers by name."""
