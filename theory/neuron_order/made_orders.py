"""Orders of neurons that are made, not searched, and the test that says whether it is worth making them.

An order is given by numbers [neurons] that sort each group.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern, Indices, stable_order
from ...sparse.patterns.similar_rows import nearest_together, similar_rows
from .neuron_groups import NeuronGroups

SAMPLED: Final = 16
"""Rows from which `locality` looks at their neighbours."""

MOST_LOOKED_AT: Final = 1 << 18
"""Connections that it looks at for all of them."""

SMOOTHINGS: Final = 30
"""Steps of the power iteration of `spectral_numbers`: it starts near its end."""


def locality(rows: CsrPattern, rng: np.random.Generator) -> float:
    """Return how many other rows share an input with a row, over what a random mask of the same counts would give.

    Row r and row s share no input of a random mask with probability exp(-n_s S_r / W), where n are the counts of rows,
    W is their sum, and S_r the number of other readers of r's inputs. 1 is a random mask, less a mask that has an
    order; also 1 where any two rows meet anyway. Time: a few milliseconds.
    """
    counts = rows.lengths
    full = np.flatnonzero(counts > 0)
    if len(full) == 0:
        return 1.0
    readers = np.bincount(rows.indices, minlength=rows.column_count)
    by_input = stable_order(rows.indices, rows.column_count)
    ends = np.cumsum(readers)
    row_of = rows.rows
    found = expected = 0.0
    left = MOST_LOOKED_AT
    for row in rng.choice(full, min(SAMPLED, len(full)), replace=False).tolist():
        inputs = rows.of(row)
        met = np.unique(np.concatenate([row_of[by_input[ends[k] - readers[k] : ends[k]]] for k in inputs.tolist()]))
        others = int(readers[inputs].sum()) - len(inputs)
        chances = -np.expm1(-counts * (others / len(rows.indices)))
        expected += float(chances.sum() - chances[row])
        found += len(met) - 1
        left -= others
        if left <= 0:
            break
    return found / expected if expected > 0 else 1.0


def outgoing_counts(groups: NeuronGroups) -> Indices:
    """Return the connections that leave each neuron, [neurons]."""
    counts = np.zeros(groups.neuron_count, dtype=np.int64)
    for weight in groups.weights:
        # those of all weights at once take more memory than the weights
        counts += np.bincount(weight.inputs.neurons[weight.rows.indices], minlength=groups.neuron_count)
    return counts


def count_numbers(groups: NeuronGroups) -> Indices:
    """Return numbers by which neurons that most connections leave come first."""
    return -outgoing_counts(groups)


def dealt_numbers(groups: NeuronGroups, block: int) -> Indices:
    """Return numbers by which blocks of `block` neurons have about equally many outgoing connections.

    Neurons are dealt to the blocks like cards, those with most connections first, to and fro.
    """
    counts = outgoing_counts(groups)
    numbers = np.empty(groups.neuron_count, dtype=np.int64)
    for group in range(groups.group_count):
        start, end = int(groups.starts[group]), int(groups.starts[group + 1])
        blocks = -(-(end - start) // block)
        turn = np.repeat(np.arange(block)[:, None], blocks, axis=1)
        to = np.where(turn % 2 == 0, np.arange(blocks), np.arange(blocks)[::-1])
        positions = (to * block + turn).ravel()
        members = start + np.argsort(-counts[start:end], kind="stable")
        numbers[members] = positions[positions < end - start]
    return numbers


def support_numbers(groups: NeuronGroups, rng: np.random.Generator) -> Indices:
    """Return numbers by which neurons that read nearly the same come together, else those that are read by the same."""
    numbers = np.arange(groups.neuron_count)
    placed = np.zeros(groups.neuron_count, dtype=np.bool_)
    for weight in groups.weights:
        for neurons, rows in ((weight.outputs.neurons, weight.rows), (weight.inputs.neurons, weight.rows.transposed())):
            rest = np.flatnonzero(~placed[neurons] & (rows.lengths > 0))
            for members in similar_rows(rows, rest, rng):
                together = neurons[nearest_together(rows, members)]
                # all of a class get the number of its first neuron, and a fraction of one by their order
                numbers[together] = together.min()
                placed[together] = True
    return numbers


def spectral_numbers(groups: NeuronGroups, start: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return numbers [neurons] that are, up to what all share, as near as possible to the mean of the neighbours'.

    The power iteration for the second eigenvector of the random walk on the network, from the numbers `start`.
    """
    sources, targets = groups.connections
    count = groups.neuron_count
    degrees = np.bincount(sources, minlength=count) + np.bincount(targets, minlength=count)
    total = max(1, int(degrees.sum()))
    numbers = start.astype(np.float64)
    for _ in range(SMOOTHINGS):
        numbers -= (numbers @ degrees) / total
        sums = np.bincount(sources, weights=numbers[targets], minlength=count)
        sums += np.bincount(targets, weights=numbers[sources], minlength=count)
        numbers = np.where(degrees > 0, 0.5 * (numbers + sums / np.maximum(1, degrees)), numbers)
    return numbers
