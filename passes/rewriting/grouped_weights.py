"""Weights and biases of layers in groups, and the orders between them."""

from collections.abc import Sequence

import numpy as np

from ...sparse.csr import CscMatrix
from ...theory.components.joint_parts import NOWHERE
from ...theory.components.split_plan import Segment, in_place
from ..analysis.weights import Doubles, Floats, Indices, Weight


def positions_of(members: Indices, count: int) -> Indices:
    """Return for each of `count` neurons its position among those of `members` [groups, width], or `NOWHERE`."""
    positions = np.full(count, NOWHERE)
    flat = members.ravel()
    filled = np.flatnonzero(flat != NOWHERE)
    positions[flat[filled]] = filled
    return positions


def grouped_weight(weight: Weight, inputs: Indices, outputs: Indices) -> Floats:
    """Return a weight [inputs, outputs] as [outputs of all groups, inputs of a group, 1]; empty positions get zeros.

    `inputs` and `outputs` are the neurons of each group; no connection may lead from one to another.
    """
    matrix = weight if isinstance(weight, CscMatrix) else CscMatrix.from_dense(weight)
    stays = matrix.values != 0
    rows = positions_of(inputs, matrix.shape[0])[matrix.rows[stays]]
    columns = positions_of(outputs, matrix.shape[1])[matrix.columns[stays]]
    width = inputs.shape[1]
    assert np.array_equal(rows // width, columns // outputs.shape[1])
    stored = np.zeros((outputs.size, width, 1), dtype=np.float32)
    stored[columns, rows % width, 0] = matrix.values[stays]
    return stored


def grouped_bias(bias: Doubles, outputs: Indices) -> Floats:
    """Return a bias [outputs of all groups]; empty positions get zeros."""
    flat = outputs.ravel()
    return np.where(flat == NOWHERE, 0.0, bias[np.maximum(flat, 0)]).astype(np.float32)


def orders_of(segments: Sequence[Segment], inputs: int, outputs: int) -> list[Indices | None]:
    """Return the order of the values before each segment, and behind the last; None where they stay.

    An empty position takes the first value of its group, or the first of all: whatever it holds, its weights are zeros.
    """
    orders: list[Indices | None] = []
    positions = np.arange(inputs)
    for segment in segments:
        members = segment.levels[0]
        filled = np.where(members == NOWHERE, np.maximum(members[:, :1], 0), members)
        stays = segment is segments[0] and in_place(members, inputs)
        orders.append(None if stays else positions[filled.ravel()])
        last = segment.levels[-1]
        positions = positions_of(last, int(last.max()) + 1)
    return [*orders, None if in_place(segments[-1].levels[-1], outputs) else positions]
