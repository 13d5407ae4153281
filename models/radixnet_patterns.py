"""The connections of RadiX-Net layers, without weights: what the zoo's `radixnet` holds, a layer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from redpebble.sparse.csr import CsrPattern

if TYPE_CHECKING:
    from redpebble.models.radixnet import RadixNet

COPIES: Final = 16
"""Neurons of a class; also 1 / weight."""


def base_layer_count(neurons: int) -> int:
    """K: the number of layers before strides repeat."""
    return (neurons // COPIES).bit_length() - 1


def radixnet_patterns(recipe: RadixNet, rng: np.random.Generator) -> tuple[CsrPattern[np.int32], ...]:
    """The layers of the model that the recipe builds with the same `rng`."""
    return tuple(layer_patterns(recipe, rng))


def layer_patterns(recipe: RadixNet, rng: np.random.Generator) -> Iterator[CsrPattern[np.int32]]:
    """The same, one layer after the other."""
    neurons, base_count = recipe.neurons, base_layer_count(recipe.neurons)
    class_count = neurons // COPIES
    pointers = np.arange(0, neurons * 2 * COPIES + 1, 2 * COPIES, dtype=np.int64)
    for layer in range(recipe.layers):
        classes = np.arange(neurons) % class_count
        sources = np.stack([classes, (classes - (1 << layer % base_count)) % class_count], axis=1)
        inputs = sources[:, :, None] + class_count * np.arange(COPIES)
        if layer >= base_count:
            # input i of the layer is input permutation[i] of the base layer
            inputs = np.argsort(rng.permutation(neurons))[inputs]
        ascending = np.sort(inputs.reshape(neurons, 2 * COPIES), axis=1)
        yield CsrPattern(pointers, ascending.astype(np.int32).reshape(-1), neurons)
