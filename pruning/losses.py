"""The loss of a pruned model: how far its outputs are from those of the dense one.

It is the share of the variance of the outputs that is lost: the mean square of their differences over the mean square
of the dense outputs' deviations from their own mean over all samples; the mean of all floating outputs. 0 is no
difference; 1 is as bad as always answering the mean. Each sample has a loss of its own, and their mean is that of the
model: how they scatter says how well it is known.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = NDArray[Any]
Losses = NDArray[np.float64]

Outputs = Sequence[Mapping[str, Value]]
"""Outputs by name, a mapping a batch."""

Loss = Callable[[Outputs, Outputs], Losses]
"""(outputs, dense outputs) -> losses [samples], whose mean is the loss: not negative, and 0 for equal outputs."""


def variance_lost(outputs: Outputs, dense: Outputs) -> Losses:
    """Return the share of the variance of the dense outputs that other outputs lose, by sample.

    A sample is one of the first axis, or a whole batch where the outputs have no first axis in common.
    """
    names = [name for name, value in dense[0].items() if np.issubdtype(value.dtype, np.floating)]
    counts = [_samples([batch[name] for name in names]) for batch in dense]
    lost = [_lost([one[name] for one in outputs], [one[name] for one in dense], counts) for name in names]
    return np.mean(lost, axis=0) if lost else np.zeros(1)


def _samples(values: Sequence[Value]) -> int:
    counts = {len(value) if value.ndim else 1 for value in values}
    return counts.pop() if len(counts) == 1 else 1


def _lost(found: Sequence[Value], dense: Sequence[Value], counts: Sequence[int]) -> Losses:
    rows = [value.reshape(-1, value.shape[-1] if value.ndim > 1 else 1).astype(np.float64) for value in dense]
    mean = sum((one.sum(axis=0) for one in rows), np.zeros(rows[0].shape[1])) / max(1, sum(map(len, rows)))
    variance = sum(float(np.square(one - mean).sum()) for one in rows)
    differences = (np.square(a.astype(np.float64) - b) for a, b in zip(found, dense, strict=True))
    moved = np.concatenate([one.reshape(count, -1).sum(axis=1) for one, count in zip(differences, counts, strict=True)])
    if variance == 0:
        return np.full(len(moved), float(moved.any()))
    return moved * (len(moved) / variance)
