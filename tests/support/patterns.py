"""Masks [rows, inputs] as lists of inputs, and shuffled."""

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.csr import CsrPattern
from redpebble.sparse.patterns.row_overlap import OverlapSample

Mask = NDArray[np.bool_]


def rows_of(mask: Mask) -> CsrPattern:
    """The rows of a mask [rows, inputs]."""
    _, inputs = np.nonzero(mask)
    pointers = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(mask.sum(axis=1))))
    return CsrPattern(pointers, inputs, mask.shape[1])


def sample_of(rows: CsrPattern) -> OverlapSample:
    """A sample of the rows."""
    return OverlapSample.of(rows, np.random.default_rng(0))


def shuffled(mask: Mask, seed: int) -> Mask:
    """The same with its rows and its inputs in random orders."""
    rng = np.random.default_rng(seed)
    return mask[rng.permutation(mask.shape[0])][:, rng.permutation(mask.shape[1])]
