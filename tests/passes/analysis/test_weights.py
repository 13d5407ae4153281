"""Dense and sparse weights do the same; numpy's dense arithmetic says what."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from redpebble.passes.analysis.weights import (
    Weight,
    connection_count,
    density,
    finite_inputs,
    finite_outputs,
    has_incoming,
    has_outgoing,
    inputs_at,
    outputs_at,
    product_with,
    scaled_inputs,
    scaled_outputs,
    with_inputs_added,
)
from redpebble.sparse.csr import CscMatrix

ENTRIES = [0.0, 0.0, 0.0, 1.0, -2.5, 0.5, np.nan, np.inf]

sizes = st.tuples(st.integers(0, 5), st.integers(0, 5))
matrices = sizes.flatmap(lambda shape: arrays(np.float32, shape, elements=st.sampled_from(ENTRIES)))
finite_matrices = sizes.flatmap(lambda shape: arrays(np.float32, shape, elements=st.sampled_from(ENTRIES[:6])))


def dense(weight: Weight) -> NDArray[np.float32]:
    return weight.to_dense() if isinstance(weight, CscMatrix) else weight


@settings(deadline=None)
@given(matrices)
def test_both_storages_know_the_same_connections(matrix: NDArray[np.float32]) -> None:
    for weight in (matrix, CscMatrix.from_dense(matrix)):
        np.testing.assert_array_equal(has_outgoing(weight), (matrix != 0).any(axis=1))
        np.testing.assert_array_equal(has_incoming(weight), (matrix != 0).any(axis=0))
        np.testing.assert_array_equal(finite_inputs(weight), np.isfinite(matrix).all(axis=1))
        np.testing.assert_array_equal(finite_outputs(weight), np.isfinite(matrix).all(axis=0))
        assert connection_count(weight) == np.count_nonzero(matrix)
        assert density(weight) == (np.count_nonzero(matrix) / matrix.size if matrix.size else 0.0)


@settings(deadline=None)
@given(matrices)
def test_rows_and_columns_are_taken_out_and_ordered(matrix: NDArray[np.float32]) -> None:
    for step in (2, -1, -2):
        rows, columns = (np.arange(size, dtype=np.int64)[::step] for size in matrix.shape)
        for weight in (matrix, CscMatrix.from_dense(matrix)):
            np.testing.assert_array_equal(dense(inputs_at(weight, rows)), matrix[rows])
            np.testing.assert_array_equal(dense(outputs_at(weight, columns)), matrix[:, columns])


@settings(deadline=None)
@given(finite_matrices, st.data())
def test_scaling_adding_and_products_are_numpys(matrix: NDArray[np.float32], data: st.DataObject) -> None:
    inputs, outputs = matrix.shape
    rows = data.draw(arrays(np.float64, inputs, elements=st.sampled_from([0.0, 0.5, -3.0])))
    columns = data.draw(arrays(np.float64, outputs, elements=st.sampled_from([0.0, 0.5, -3.0])))
    position = data.draw(arrays(np.int64, inputs, elements=st.integers(0, 2)))
    added = np.zeros((3, outputs))
    np.add.at(added, position, matrix)
    for weight in (matrix, CscMatrix.from_dense(matrix)):
        np.testing.assert_array_equal(dense(scaled_inputs(weight, rows)), matrix * rows[:, None])
        np.testing.assert_array_equal(dense(scaled_outputs(weight, columns)), matrix * columns)
        np.testing.assert_array_equal(dense(with_inputs_added(weight, position, 3)), added)
        np.testing.assert_array_equal(product_with(rows, weight), rows @ matrix.astype(np.float64))


def test_a_scaled_connection_of_weight_zero_is_none() -> None:
    weight = CscMatrix.from_dense(np.ones((2, 2), dtype=np.float32))
    assert connection_count(scaled_outputs(weight, np.array([0.0, 1.0]))) == 2
