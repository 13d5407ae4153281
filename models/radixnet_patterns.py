"""The connections of RadiX-Net layers, without weights: what the zoo's `radixnet` holds, at widths that no file can."""

from __future__ import annotations

import numpy as np

from redpebble.models.radixnet import COPIES, RadixNet, base_layer_count
from redpebble.theory.partition import Pattern


def radixnet_patterns(recipe: RadixNet, rng: np.random.Generator) -> tuple[Pattern, ...]:
    """The layers of the model that the recipe builds with the same `rng`."""
    neurons, base_count = recipe.neurons, base_layer_count(recipe.neurons)
    class_count = neurons // COPIES
    pointers = np.arange(0, neurons * 2 * COPIES + 1, 2 * COPIES, dtype=np.int64)
    patterns: list[Pattern] = []
    for layer in range(recipe.layers):
        classes = np.arange(neurons) % class_count
        sources = np.stack([classes, (classes - (1 << layer % base_count)) % class_count], axis=1)
        inputs = sources[:, :, None] + class_count * np.arange(COPIES)
        if layer >= base_count:
            # input i of the layer is input permutation[i] of the base layer
            inputs = np.argsort(rng.permutation(neurons))[inputs]
        ascending = np.sort(inputs.reshape(neurons, 2 * COPIES), axis=1)
        patterns.append(Pattern(neurons, pointers, ascending.astype(np.int32).reshape(-1)))
    return tuple(patterns)
