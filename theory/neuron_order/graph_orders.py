"""Orders of neurons from the graph of the whole unrolled network: reverse Cuthill-McKee, and passes over few layers.

Source: Cuthill and McKee, Reducing the bandwidth of sparse symmetric matrices; scipy's implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from .neuron_groups import NeuronGroups

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Indices = NDArray[np.int64]

MOST_IN_PASS: Final = 1024
"""Neurons of a group that one component of a pass may hold: so many rows of a tile stay in the second-level cache."""


def cuthill_mckee_numbers(groups: NeuronGroups) -> Indices:
    """Return the number of each neuron in reverse Cuthill-McKee order, component after component, [neurons]."""
    return bandwidth_numbers(*groups.connections, groups.neuron_count)


def bandwidth_numbers(sources: Indices, targets: Indices, count: int) -> Indices:
    """Return the reverse Cuthill-McKee numbers of `count` neurons that connections join."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order = reverse_cuthill_mckee(_neighbours(sources, targets, count), symmetric_mode=True)
    numbers = np.empty(count, dtype=np.int64)
    numbers[order] = np.arange(count)
    return numbers


def pass_numbers(groups: NeuronGroups, within: Indices) -> Indices | None:
    """Return numbers that sort neurons by the components of a pass, and by `within` inside a component.

    Weights are taken in turn into a pass as long as all its components stay small; then a new pass begins. That is how
    butterflies and Fourier transforms run in blocks: small strides first, then the large ones, which are small in an
    order of their own. None where all are in one pass, or none is.
    """
    numbers = np.full(groups.neuron_count, -1, dtype=np.int64)
    passes, start = 0, 0
    while start < len(groups.weights):
        end, labels = start + 1, None
        while end <= len(groups.weights):
            found = _small_components(groups, start, end)
            if found is None:
                break
            labels, end = found, end + 1
        if labels is not None:
            passes += 1
            first = np.full(int(labels.max()) + 1, groups.neuron_count)
            np.minimum.at(first, labels, within)
            members = np.flatnonzero((labels >= 0) & (numbers < 0) & _touched(groups, start, end - 1))
            numbers[members] = first[labels[members]] * groups.neuron_count + within[members]
        start = max(start + 1, end - 1)
    return np.where(numbers < 0, within, numbers) if passes > 1 else None


def _small_components(groups: NeuronGroups, start: int, end: int) -> Indices | None:
    """Return the component of each neuron when only some weights connect; None where one is large in a group."""
    from scipy.sparse.csgraph import connected_components

    joined = [weight.connections for weight in groups.weights[start:end]]
    sources, targets = (np.concatenate([pair[side] for pair in joined]) for side in (0, 1))
    _, labels = connected_components(_neighbours(sources, targets, groups.neuron_count), directed=False)
    _, sizes = np.unique(labels * groups.group_count + groups.group_of, return_counts=True)
    return labels.astype(np.int64) if sizes.max(initial=0) <= MOST_IN_PASS else None


def _touched(groups: NeuronGroups, start: int, end: int) -> NDArray[np.bool_]:
    touched = np.zeros(groups.neuron_count, dtype=np.bool_)
    for weight in groups.weights[start:end]:
        touched[weight.inputs.neurons] = touched[weight.outputs.neurons] = True
    return touched


def _neighbours(sources: Indices, targets: Indices, count: int) -> csr_array:
    from scipy.sparse import csr_array

    # what scipy counts with: half the memory to pass through, and no copies to make the numbers smaller
    one, other = sources.astype(np.int32), targets.astype(np.int32)
    ends = np.concatenate((one, other)), np.concatenate((other, one))
    return csr_array((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(count, count))
