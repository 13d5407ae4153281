"""Correction of the cost model by the mean of the nearest layers on which kernels were measured.

A cost model is right about what a layer changes, and wrong about a machine by much the same on layers that are alike.
So layers are points in a space of their sizes, density, spread of counts, work and sharing, and the factor of a kernel
is the geometric mean of measured over predicted time of the nearest layers on which it was measured. One nearest layer
follows noise, all of them say no more than how fast the machine is: on 784 layers of a machine that prices were not
fitted to, 3 to 5 of 30 are best.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..work import Layer

NEAREST: Final = 5
"""Layers whose mean counts."""

MOST_EXAMPLES: Final = 512
"""Layers that are kept, the latest ones: more only take time."""

SPREAD_WEIGHT, SHARING_WEIGHT = 1.5, 3.0
"""Distance of 1 in a spread of counts, and in a share of connections, beside that of a factor of e in sizes."""

LEAST_FACTOR, MOST_FACTOR = 0.1, 10.0
"""Least and most share of its predicted time that a kernel takes; beyond, the clock was disturbed."""

EXAMPLE: Final = "INPUTS/OUTPUTS/DENSITY/SPREAD/SHARING|KERNEL@WIDTH=FACTOR|.."

Floats = NDArray[np.float64]


class Place(NamedTuple):
    """The place of a layer among others.

    spread is the deviation of the outputs' counts over their mean; sharing the share of reads that panels save.
    """

    inputs: int
    outputs: int
    density: float
    spread: float
    sharing: float

    @staticmethod
    def of(layer: Layer) -> "Place":
        """Return the place of a layer."""
        connections = max(1, layer.connections)
        sharing = 1 - layer.panel_reads / connections if layer.stored == "panels" else 0.0
        numbers = (layer.density, layer.spread, sharing)
        return Place(layer.inputs, layer.outputs, *(float(f"{number:.4g}") for number in numbers))

    @property
    def point(self) -> tuple[float, ...]:
        """The coordinates: a factor of e in sizes, density or work is a distance of 1 in each."""
        sizes = np.log(np.maximum(1, (self.inputs, self.outputs)))
        density = float(np.log(max(self.density, 1e-6)))
        work = float(sizes.sum()) + density
        return (*map(float, sizes), density, work, SPREAD_WEIGHT * self.spread, SHARING_WEIGHT * self.sharing)

    def __str__(self) -> str:
        return f"{self.inputs}x{self.outputs} at {self.density:.2g}"


class Example(NamedTuple):
    """A layer that was measured: measured over predicted time of instructions by kernel, such as `strips@64`."""

    place: Place
    factors: Mapping[str, float]

    @property
    def word(self) -> str:
        """The example as `parse` reads it."""
        return "|".join(["/".join(map(str, self.place)), *(f"{name}={one:.4g}" for name, one in self.factors.items())])

    @staticmethod
    def parse(word: str) -> "Example":
        """Return the example of a text that `word` made.

        Raises:
            ValueError: the text is something else.
        """
        try:
            place, *factors = word.split("|")
            inputs, outputs, *shares = place.split("/")
            density, spread, sharing = map(float, shares)
            known = {kernel: float(factor) for kernel, factor in (one.split("=") for one in factors)}
            at = Place(int(inputs), int(outputs), density, spread, sharing)
            is_known = known and all(int(kernel.split("@")[1]) > 0 for kernel in known)
            if (
                not is_known
                or not np.isfinite((*at, *known.values())).all()
                or min(*at) < 0
                or min(known.values()) <= 0
            ):
                raise ValueError
            return Example(at, known)
        except (ValueError, IndexError):
            raise ValueError(f"expected {EXAMPLE}, got {word[:60]!r}") from None


class Neighbours(NamedTuple):
    """The examples nearest to a layer, and the logarithms of factors by family: ascending widths, logarithms."""

    places: tuple[Place, ...]
    logs: Mapping[str, tuple[Floats, Floats]]
    all_kernels: float
    """The logarithm for kernels that were not measured: the mean of all others."""

    def factor(self, family: str, width: int) -> float:
        """Return by what the predicted time of instructions is multiplied; between two widths, what lies between."""
        known = self.logs.get(family)
        return float(np.exp(self.all_kernels if known is None else np.interp(log(width), *known)))


@dataclass(frozen=True)
class Examples:
    """Measured layers of one machine, each in the form of `Example.word`.

    Raises:
        ValueError: a word cannot be read.
    """

    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _ = [_parsed(word) for word in self.words]

    @staticmethod
    def of(examples: Iterable[Example]) -> "Examples":
        """Return the words of examples."""
        return Examples(tuple(one.word for one in examples))

    def with_more(self, others: "Examples") -> "Examples":
        """Return these examples and others, which win at the same place; if too many, the last examples."""
        by_place = {_parsed(word).place: word for word in (*self.words, *others.words)}
        return Examples(tuple(by_place.values())[-MOST_EXAMPLES:])

    @cached_property
    def table(self) -> "_Table":
        return _Table.of([_parsed(word) for word in self.words])

    def near(self, layer: Layer) -> Neighbours | None:
        """Return the measurements near a layer; None if there are none."""
        return _near(self, Place.of(layer)) if self.words else None


class _Table(NamedTuple):
    """Examples in numbers: points [examples, coordinates], logs of factors [examples, kernels], NaN where unknown."""

    places: tuple[Place, ...]
    points: Floats
    kernels: tuple[str, ...]
    logs: Floats

    @staticmethod
    def of(examples: list[Example]) -> "_Table":
        kernels = tuple(dict.fromkeys(kernel for one in examples for kernel in one.factors))
        factors = [[one.factors.get(kernel, np.nan) for kernel in kernels] for one in examples]
        points = np.array([one.place.point for one in examples])
        return _Table(tuple(one.place for one in examples), points, kernels, np.log(np.array(factors)))


@lru_cache(maxsize=4 * MOST_EXAMPLES)
def _parsed(word: str) -> Example:
    return Example.parse(word)


@lru_cache(maxsize=256)
def _near(examples: Examples, place: Place) -> Neighbours:
    """Return the means over the nearest examples of a place, for each kernel over those that have it."""
    table = examples.table
    order = np.argsort(((table.points - np.array(place.point)) ** 2).sum(axis=1), kind="stable")
    logs = table.logs[order]
    known = ~np.isnan(logs)
    counted = known & (np.cumsum(known, axis=0) <= NEAREST)
    means = np.where(counted, logs, 0.0).sum(axis=0) / np.maximum(1, counted.sum(axis=0))
    by_family: dict[str, list[tuple[int, float]]] = {}
    for kernel, mean in zip(table.kernels, means.tolist(), strict=True):
        family, _, width = kernel.partition("@")
        by_family.setdefault(family, []).append((int(width), mean))
    curves = {
        family: (np.log([width for width, _ in sorted(own)]), np.array([mean for _, mean in sorted(own)]))
        for family, own in by_family.items()
    }
    nearest: list[int] = order[:NEAREST].tolist()
    return Neighbours(tuple(table.places[index] for index in nearest), curves, float(means.mean()))
