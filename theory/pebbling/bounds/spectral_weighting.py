"""Spectral bound of what intervals can miss: the expander mixing argument for a weighted bipartite graph.

Put weights w > 0 on the connections, sum 1, and let mu be the weight at each interval. B = D_L^(-1/2) w D_R^(-1/2) has
largest singular value 1, with vectors sqrt(mu); let s be the second. For sets S, T without a connection between them

    0 = w(S, T) = mu(S) mu(T) + x' B y,  |x' B y| <= s |x| |y|,  |x|^2 = mu(S) (1 - mu(S)),  |y|^2 = mu(T) (1 - mu(T)),

where x and y are D^(1/2) 1_S and D^(1/2) 1_T less their parts along sqrt(mu). So mu(S) mu(T) <= s^2 (1 - mu(S)) (1 -
mu(T)), or mu(S) <= q / (mu(T) + q) with q = s^2 (1 - mu(T)). Any weights are valid; those that make mu nearly equal on
each side (Sinkhorn's scaling) are best for dense groups, powers of the degrees for others. s^2 comes from a dense
symmetric eigenvalue solver, which is backward stable: the margin added is far above its error.
Source: derived; the unweighted inequality for regular graphs is known as the expander mixing lemma.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .live_intervals import IntervalGroup
from .separator_bound import Floats, Weighting

# Intervals on the smaller side, whose products among each other the solver works on: 1500 x 1500 take about 0.5 s.
LARGEST_SIDE = 1536
# Intervals on the left times on the right: the matrix itself is dense, 34 MB. 1024 x 4096 are within reach.
LARGEST_AREA = 4_200_000
_MARGIN = 1e-9
# Rounds of Sinkhorn's scaling.
_ROUNDS = 20


def is_within_reach(group: IntervalGroup) -> bool:
    """Whether the group is small enough for the dense solver."""
    return min(group.shape) <= LARGEST_SIDE and group.shape[0] * group.shape[1] <= LARGEST_AREA


def degree_weights(group: IntervalGroup, power: float) -> Floats:
    """A weight for each connection: the product of the degrees of its ends to the power `power`."""
    lefts, rights = np.bincount(group.rows), np.bincount(group.columns)
    return (lefts[group.rows] * rights[group.columns]).astype(np.float64) ** power


def equalising_weights(group: IntervalGroup) -> Floats:
    """A weight for each connection that makes the measures of each side nearly equal, where the group allows that."""
    weights = np.ones(len(group.rows))
    for _ in range(_ROUNDS):
        weights /= _sums(group.rows, weights, group.shape[0])[group.rows]
        weights /= _sums(group.columns, weights, group.shape[1])[group.columns]
    return weights


def spectral_weighting(group: IntervalGroup, connection_weights: Floats) -> Weighting:
    """The measures that positive weights of the connections give, and what they let a set miss.

    Raises:
        ValueError: the group is not within reach.
    """
    _check_size(group)
    weights = connection_weights / connection_weights.sum()
    left, right = _sums(group.rows, weights, group.shape[0]), _sums(group.columns, weights, group.shape[1])
    square = _second_square(group, weights / np.sqrt(left[group.rows] * right[group.columns]))

    def missing(measures: Floats) -> Floats:
        bounded = np.clip(measures, 1e-12, 1.0)
        room = square * (1.0 - bounded)
        return np.where(measures <= 1e-12, 1.0, room / (bounded + room))

    return Weighting(left, right, missing)


def largest_deviation(group: IntervalGroup) -> float:
    """The largest singular value of the group's 0/1 matrix less its density, rounded up.

    Raises:
        ValueError: the group is not within reach.
    """
    _check_size(group)
    density = len(group.rows) / (group.shape[0] * group.shape[1])
    centred = _dense(group, np.ones(len(group.rows))) - density
    largest = float(np.linalg.eigvalsh(_smaller_gram(centred))[-1])
    return float(np.sqrt(max(0.0, largest) + _MARGIN * len(group.rows)))


def _check_size(group: IntervalGroup) -> None:
    if not is_within_reach(group):
        found = " x ".join(map(str, group.shape))
        raise ValueError(f"expected up to {LARGEST_SIDE} intervals on a side and {LARGEST_AREA} pairs, got {found}")


def _dense(group: IntervalGroup, entries: Floats) -> Floats:
    matrix = np.zeros(group.shape)
    matrix[group.rows, group.columns] = entries
    return matrix


def _smaller_gram(matrix: Floats) -> Floats:
    return matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix


def _sums(keys: NDArray[np.int64], weights: Floats, count: int) -> Floats:
    return np.bincount(keys, weights=weights, minlength=count).astype(np.float64)


def _second_square(group: IntervalGroup, entries: Floats) -> float:
    """Square of the second singular value of the matrix of these entries, rounded up; 1 at most."""
    squares = np.linalg.eigvalsh(_smaller_gram(_dense(group, entries)))
    return min(1.0, float(squares[-2]) + _MARGIN) if len(squares) > 1 else _MARGIN
