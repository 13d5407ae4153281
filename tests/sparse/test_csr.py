"""Patterns of sparse matrices: what their methods give is what the dense mask says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redpebble.sparse.csr import CscMatrix, CsrPattern


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 99))
def test_rows_taken_and_transposed_are_those_of_the_mask(rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, columns)) < 0.4
    pattern = CscMatrix.from_dense(mask.T.astype(np.float32)).pattern
    pattern.check()
    chosen = rng.permutation(rows)
    assert np.array_equal(pattern.dense(chosen), mask[chosen])
    taken, turned = pattern.taken(chosen), pattern.transposed()
    turned.check()
    assert np.array_equal(taken.dense(np.arange(rows)), mask[chosen])
    assert np.array_equal(turned.dense(np.arange(columns)), mask.T)
    assert np.array_equal(pattern.thinned(2).lengths, np.minimum(mask.sum(axis=1), 2))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((2, [0, 2], [0]), "pointers do not ascend from 0 to 1 entries"),
        ((2, [0, 1], [2]), "expected columns from 0 to 1, got 2"),
        ((2, [0, 1], [-1]), "expected columns from 0 to 1, got -1"),
        ((3, [0, 1, 3], [2, 1, 1]), "the columns of row 1 do not ascend"),
    ],
)
def test_a_wrong_pattern_is_refused(arrays: tuple[int, list[int], list[int]], message: str) -> None:
    count, pointers, indices = arrays
    with pytest.raises(ValueError, match=message.replace("..", r"\.\.")):
        CsrPattern(np.array(pointers, dtype=np.int64), np.array(indices, dtype=np.int64), count).check()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (0, 3), (3, 0), (1, 1)])
def test_entries_of_a_dense_matrix_are_what_is_not_zero(shape: tuple[int, int]) -> None:
    values = np.array([0.0, -0.0, 1.5, np.nan, -np.inf, 1e-45], np.float32)
    matrix = np.random.default_rng(0).choice(values, shape)
    found = CscMatrix.from_dense(matrix)
    columns, rows = np.nonzero(matrix.T)
    assert found.rows.tolist() == rows.tolist()
    assert found.columns.tolist() == columns.tolist()
    np.testing.assert_array_equal(found.to_dense(), np.where(matrix == 0, np.float32(0), matrix))
