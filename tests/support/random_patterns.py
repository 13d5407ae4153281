"""Random layers, and what a partition of one costs by the definition, pair by pair."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.sparse.csr import CsrPattern
from redpebble.theory.partition.partition import Owners

Matrix = NDArray[np.bool_]
"""[inputs, outputs]."""


def pattern_of_matrix(matrix: Matrix) -> CsrPattern:
    outputs, inputs = np.nonzero(matrix.T)
    counts = np.bincount(outputs, minlength=matrix.shape[1])
    return CsrPattern(np.append(0, np.cumsum(counts)), inputs, matrix.shape[0])


def random_chain(widths: list[int], density: float, seed: int) -> list[Matrix]:
    rng = np.random.default_rng(seed)
    return [rng.random(shape) < density for shape in pairwise(widths)]


def sent_by_definition(matrix: Matrix, input_owners: Owners, output_owners: Owners) -> dict[tuple[int, int], set[int]]:
    """The inputs that are sent, by (from, to)."""
    sent: dict[tuple[int, int], set[int]] = {}
    for value, output in zip(*np.nonzero(matrix), strict=True):
        pair = int(input_owners[value]), int(output_owners[output])
        if pair[0] != pair[1]:
            sent.setdefault(pair, set()).add(int(value))
    return sent


@st.composite
def layers(draw: st.DrawFn) -> tuple[Matrix, Owners, Owners, int]:
    """A layer with empty and equal rows and columns, the owners of its inputs and outputs, and the number of parts."""
    shape = draw(st.integers(1, 9)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    matrix = rng.random(shape) < draw(st.sampled_from([0.0, 0.2, 0.5, 1.0]))
    # outputs that are alike and inputs that are used alike, as RadiX-Net has them
    matrix = matrix[rng.integers(0, shape[0], shape[0])][:, rng.integers(0, shape[1], shape[1])]
    parts = draw(st.integers(1, 5))
    owners = [rng.integers(0, parts, size).astype(np.int32) for size in shape]
    return matrix, owners[0], owners[1], parts
