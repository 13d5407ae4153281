"""`lookup_halves`: the panels of `permute_lookup`, with weights of 16 bits.

One row reads each weight once, so beyond the second-level cache its time is that of the bytes. Weights are rounded to
bfloat16, activations and sums stay float32. A line of 32 weights is 16 words: the weight of row r in the lower half of
word r, that of row r + 16 in the upper one.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...foundation.bfloat import bfloat_bits
from ..family import KernelFamily, LayerWeights
from ..work import Layer, Tile, Work
from . import permute_lookup
from .permute_lookup_search import PANEL_ROWS

WORDS: Final = PANEL_ROWS // 2
"""Words of a line of weights."""

Words = NDArray[np.uint32]


class PackedHalves(NamedTuple):
    """The arrays of `PackedLookups`, weights u32 [lines, 16]."""

    sizes: Words
    sequences: Words
    words: Words
    weights: Words


def pack(weights: LayerWeights) -> PackedHalves:
    """Return the packed form of a layer."""
    packed = permute_lookup.pack(weights)
    low, high = np.hsplit(bfloat_bits(packed.weights), 2)
    return PackedHalves(
        packed.sizes, packed.sequences, packed.words, np.stack((low, high), axis=-1).view(np.uint32)[..., 0]
    )


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work of `permute_lookup`, which reads half as many bytes of weights."""
    once = permute_lookup.work(layer, tile)
    _, steps, gathers, _ = once.units
    return Work(once.units, once.stream_bytes - 2 * PANEL_ROWS * (steps + gathers), once.passes)


FAMILY = KernelFamily(
    "lookup_halves",
    pack,
    work,
    (1,),
    lanes=(16,),
    rounds="bf16",
    # an input that is transposed, a step, a gather, a panel, in steps of floats: as those, measured on Emerald Rapids
    prices={16: (1.0, 1.0, 5.0, 8.0, 1.0)},
    priced_in=(permute_lookup.FAMILY.name, 1),
)
