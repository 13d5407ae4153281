"""`gathered_panels`: panels of eight outputs for one row of activations, the place of each weight's input beside it.

Outputs with about as many connections share a panel. Step s of a panel is the s-th connection of each of its outputs;
an output that has none left has a weight of 0 there.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..family import KernelFamily, LayerWeights
from ..work import Layer, Tile, Work
from . import sparse_rows

PANEL: Final = 8
"""Outputs of a panel."""

STEPS: Final = 2
"""Steps that are done together, which have sums of their own: two chains of multiply-adds hide each other's latency."""

MOST_INPUTS: Final = 1 << 16


class PackedSteps(NamedTuple):
    """Panels, those of the outputs with most connections first."""

    counts: NDArray[np.uint32]
    """[panels]: pairs of steps."""
    heads: NDArray[np.uint32]
    """[panels, 2, 8]: biases, as floats, and numbers of outputs; the last panel is filled up with its first output."""
    inputs: NDArray[np.uint16]
    """[steps of all panels, 8]."""
    weights: NDArray[np.float32]
    """[steps of all panels, 8]."""


def pack(weights: LayerWeights) -> PackedSteps:
    """Return the panels.

    Raises:
        ValueError: the layer has more inputs than 16 bits can number.
    """
    matrix = weights.sparse
    inputs, outputs = matrix.shape
    if inputs > MOST_INPUTS:
        raise ValueError(f"expected at most {MOST_INPUTS} inputs, got {inputs}")
    lengths = np.diff(matrix.pointers)
    order = np.argsort(-lengths, kind="stable")
    counts = -(-lengths[order[::PANEL]] // STEPS)
    # where each panel's steps begin, and the panel and lane of each output
    starts = STEPS * (np.cumsum(counts) - counts)
    place = np.empty(outputs, np.int64)
    place[order] = np.arange(outputs)
    owner = np.repeat(np.arange(outputs), lengths)
    step = starts[place[owner] // PANEL] + np.arange(len(owner)) - matrix.pointers[owner]
    sources = np.zeros((STEPS * int(counts.sum()), PANEL), np.uint16)
    values = np.zeros(sources.shape, np.float32)
    sources[step, place[owner] % PANEL] = matrix.rows
    values[step, place[owner] % PANEL] = matrix.values

    members = np.zeros((len(counts), PANEL), np.int32)
    members[:] = order[::PANEL, np.newaxis]
    members.reshape(-1)[:outputs] = order
    heads = np.stack([weights.bias[members].astype(np.float32).view(np.int32), members], axis=1)
    return PackedSteps(counts.astype(np.uint32), heads.view(np.uint32), sources, values)


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work for connections as if all outputs of a panel had as many as its fullest, and for panels."""
    del tile
    fullest = layer.fullest(PANEL)
    # half of the panels have an odd number of steps
    slots = PANEL * float((fullest + (STEPS - 1) / 2 * (fullest > 0)).sum())
    return Work((slots, float(len(fullest))), 6 * slots + 68 * len(fullest))


FAMILY = KernelFamily(
    "gathered_panels",
    pack,
    work,
    (1,),
    lanes=(4, 8),
    most_inputs=MOST_INPUTS,
    # measured on Zen 1; a CPU that does more instructions a cycle does so with both
    prices={4: (0.4, 20.0, 2.0), 8: (0.28, 17.0, 2.0)},
    priced_in=(sparse_rows.FAMILY.name, 1),
)
