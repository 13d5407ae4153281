"""The loss of a pruned model: how far its outputs are from those of the dense one.

It is the share of the variance of the outputs that is lost: the mean square of their differences over the mean square
of the dense outputs' deviations from their own mean over all samples; the mean of all floating outputs. 0 is no
difference; 1 is as bad as always answering the mean.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = NDArray[Any]
Outputs = Sequence[Mapping[str, Value]]
"""Outputs by name, a mapping a batch."""

Loss = Callable[[Outputs, Outputs], float]
"""(outputs, dense outputs) -> loss: not negative, and 0 for equal ones."""


def variance_lost(outputs: Outputs, dense: Outputs) -> float:
    """Return the share of the variance of the dense outputs that other outputs lose."""
    names = [name for name, value in dense[0].items() if np.issubdtype(value.dtype, np.floating)]
    lost = [_lost([one[name] for one in outputs], [one[name] for one in dense]) for name in names]
    return float(np.mean(lost)) if lost else 0.0


def _lost(found: Sequence[Value], dense: Sequence[Value]) -> float:
    rows = [value.reshape(-1, value.shape[-1] if value.ndim > 1 else 1).astype(np.float64) for value in dense]
    mean = sum((one.sum(axis=0) for one in rows), np.zeros(rows[0].shape[1])) / max(1, sum(map(len, rows)))
    variance = sum(float(np.square(one - mean).sum()) for one in rows)
    moved = sum(float(np.square(a.astype(np.float64) - b).sum()) for a, b in zip(found, dense, strict=True))
    return moved / variance if variance > 0 else float(moved > 0)
