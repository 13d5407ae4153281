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
    # batch by batch: logits of a few thousand tokens have more values than memory has room for as float64
    width = dense[0].shape[-1] if dense[0].ndim > 1 else 1
    total, rows = np.zeros(width), 0
    for value in dense:
        total += value.reshape(-1, width).sum(axis=0, dtype=np.float64)
        rows += value.size // width
    mean, variance, moved = total / max(1, rows), 0.0, list[Losses]()
    for one, other, count in zip(found, dense, counts, strict=True):
        expected = other.reshape(-1, width).astype(np.float64)
        moved.append(np.square(one.reshape(-1, width) - expected).reshape(count, -1).sum(axis=1))
        expected -= mean
        variance += float(np.square(expected, out=expected).sum())
    lost = np.concatenate(moved)
    if variance == 0:
        return np.full(len(lost), float(lost.any()))
    return lost * (len(lost) / variance)
