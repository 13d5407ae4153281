"""`code_halves`: the form of `code_bits` for weights of four bits of which few are zeros."""

from dataclasses import replace

from ..family import LayerWeights
from . import code_bits


def pack(weights: LayerWeights) -> code_bits.PackedBits:
    """Return the packed form of a layer with its zeros."""
    return code_bits.pack(weights, stores_zeros=True)


FAMILY = replace(code_bits.FAMILY, name="code_halves", pack=pack, stored=("dense",))
