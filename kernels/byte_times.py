"""Predicted times of quantized layers, by the kernels of bytes: as measured on a CPU with AVX-512 VNNI of 2.5 GHz."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from redpebble.kernels import byte_lookup, byte_quads
from redpebble.kernels.byte_lookup import LookupForm, by_length
from redpebble.sparse.csr import CscMatrix

LOOKUP: Final = "byte_lookup"
QUADS: Final = "byte_quads"

FORM: Final = LookupForm(16, bytewise=True)

STEP_NS: Final[Mapping[int, float]] = MappingProxyType({1: 3.0, 8: 4.3, 64: 34.0})
"""Rows -> nanoseconds of a step of a panel."""

LOOKUP_OUTPUT_NS: Final = 12.0
"""Nanoseconds of the end of an output for 64 rows, by look-ups."""

QUAD_NS: Final = 1.4
PAIR_NS: Final = 40.0
QUADS_OUTPUT_NS: Final = 20.0
"""Nanoseconds for 64 rows of a quad, of two outputs in a block of inputs, and of the end of an output."""

DENSE_PRODUCTS: Final[Mapping[int, float]] = MappingProxyType({1: 24.0, 8: 178.0, 64: 258.0})
"""Rows -> products a nanosecond of onnxruntime's dense layers of bytes."""

DENSE_CALL_US: Final = 2.0
"""Microseconds of the call of a dense layer, which is a node of its own."""

DENSEST: Final = 0.75
"""Density above which no layer gains, whatever its structure."""

COUNTED_PANELS: Final = 8
"""Panels whose steps are counted."""

FEWEST_QUADS: Final = 16
"""Quads of an output in a block, about, below which blocks cost more than lines from beyond the first-level cache."""


class ByteTimes(NamedTuple):
    """Microseconds by family and rows, and the blocks of inputs of quads."""

    by_family: dict[str, dict[int, float]]
    blocks: int


def predicted(weights: Sequence[CscMatrix]) -> ByteTimes:
    """Return the times of layers with these weights, one after the other."""
    blocks = max((_blocks(weight) for weight in weights), default=1)
    outputs = sum(weight.shape[1] for weight in weights)
    steps = sum(map(_steps, weights))
    quads = sum(map(byte_quads.quad_count, weights))
    lookup = {rows: steps * ns / 1e3 + outputs * LOOKUP_OUTPUT_NS * rows / 64e3 for rows, ns in STEP_NS.items()}
    wide = (quads * QUAD_NS + outputs * (blocks * PAIR_NS / byte_quads.PAIR + QUADS_OUTPUT_NS)) / 1e3
    return ByteTimes({LOOKUP: lookup, QUADS: {byte_quads.COLUMNS: wide}}, blocks)


def gains(weight: CscMatrix) -> bool:
    """Return whether a layer is predicted to be faster than a dense one of bytes, whatever the rows."""
    size = weight.shape[0] * weight.shape[1]
    if len(weight.values) > DENSEST * size:
        return False
    times = predicted([weight]).by_family
    fastest = times[LOOKUP] | {rows: min(us, times[LOOKUP][rows]) for rows, us in times[QUADS].items()}
    dense = {rows: DENSE_CALL_US + 1e-3 * size * rows / products for rows, products in DENSE_PRODUCTS.items()}
    return all(fastest[rows] < dense[rows] for rows in dense)


def _blocks(weight: CscMatrix) -> int:
    """Return the blocks of inputs: as many as the cache asks for, unless an output has few quads in each."""
    mean = byte_quads.quad_count(weight) / max(1, weight.shape[1])
    return max(1, min(byte_quads.block_count(weight.shape[0]), int(mean // FEWEST_QUADS)))


def _steps(weight: CscMatrix) -> float:
    """Return the steps of all panels, from those of a few."""
    order, lanes = by_length(weight), FORM.lanes
    panels = -(-len(order) // lanes)
    chosen = np.unique(np.linspace(0, max(0, panels - 1), COUNTED_PANELS).astype(np.int64))
    some = np.concatenate([order[lanes * panel : lanes * (panel + 1)] for panel in chosen])
    part = weight.pattern.taken(some)
    values = np.concatenate([weight.values[weight.pointers[one] : weight.pointers[one + 1]] for one in some])
    taken = CscMatrix((weight.shape[0], len(some)), part.pointers, part.indices, values)
    packed = byte_lookup.pack(taken, FORM, np.arange(len(some)), np.arange(weight.shape[0]))
    return len(packed.windows) * panels / max(1, len(chosen))
