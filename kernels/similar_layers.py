"""Layers that are alike: of one shape, with about as many connections, spread as evenly; one price serves them all.

Encoders repeat their layers, and pruning leaves each copy as many weights: masks differ, predicted times by less than
they are off.
"""

from math import floor, log, log1p
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .layer_with_pattern import LayerWithPattern
from .work import Layer

Indices = NDArray[np.int64]

TOLERANCE: Final = 0.03
"""Share by which measures of alike layers may differ; predicted times are off by about 6 %."""

NEIGHBOURS: Final = 32
"""Outputs, and twice the inputs, that stand together in kernels and caches."""


class Likeness(NamedTuple):
    """Measures from which the price of a sparse layer follows."""

    shape: tuple[int, int]
    measures: tuple[float, ...]
    """Connections, those of the fullest outputs, rows with connections in 16 inputs, inputs that 32 outputs read, the
    bytes of other layers, and whether values are rounded. A dense layer has zeros for the third and the fourth."""

    def alike(self, other: "Likeness") -> bool:
        """Return whether one price serves both."""
        pairs = zip(self.measures, other.measures, strict=True)
        return self.shape == other.shape and all(abs(one - two) <= TOLERANCE * max(one, two) for one, two in pairs)

    @property
    def step(self) -> int:
        """The number of connections in steps of the tolerance: alike layers are at most one step apart."""
        return floor(log(max(self.measures[0], 1.0)) / -log1p(-TOLERANCE))


def likeness_of(layer: Layer) -> Likeness | None:
    """Return the likeness of a layer; None for layers with structure."""
    size, rest = (layer.inputs, layer.outputs), (layer.other_bytes, float(layer.rounded), float(layer.code_bits))
    if layer.stored == "dense":
        return Likeness(size, (float(layer.connections), float(layer.fullest(NEIGHBOURS).sum()), 0.0, 0.0, *rest))
    if not isinstance(layer, LayerWithPattern) or layer.stored != "sparse" or layer.rows is None:
        return None
    outputs, inputs = layer.rows.rows, layer.rows.indices
    half = NEIGHBOURS // 2
    touched = _different(outputs * -(-layer.inputs // half) + inputs // half, -(-layer.inputs // half) * layer.outputs)
    read = _different(outputs // NEIGHBOURS * layer.inputs + inputs, (layer.outputs // NEIGHBOURS + 1) * layer.inputs)
    fullest = float(layer.fullest(NEIGHBOURS).sum())
    measures = (
        float(layer.connections),
        fullest,
        float(touched),
        float(read),
        *rest,
    )
    return Likeness(size, measures)


def _different(keys: Indices, count: int) -> int:
    seen = np.zeros(count, dtype=np.bool_)
    seen[keys] = True
    return int(np.count_nonzero(seen))
