import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import sparse
from xdsl.dialects import test
from xdsl.dialects.builtin import BytesAttr, DenseIntOrFPElementsAttr, ModuleOp
from xdsl.utils.exceptions import VerifyException

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from redpebble.dialect.tensors import dense_floats, f32_tensor
from redpebble.sparse.csr import CscMatrix
from tests.dialect.pebble_text import parse, text_of

SPARSE_FLOATS = st.one_of(st.just(0.0), st.floats(width=32))
MATRICES = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=12), elements=SPARSE_FLOATS
)
ARRAYS = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12), elements=SPARSE_FLOATS
)


@settings(deadline=None, max_examples=30)
@given(ARRAYS)
def test_a_constant_reads_back_bit_by_bit(array: NDArray[np.float32]) -> None:
    module = parse(text_of(ModuleOp([ConstantOp(array)])))
    (read,) = module.body.block.ops
    assert isinstance(read, ConstantOp)
    assert read.array.shape == array.shape
    assert read.array.tobytes() == array.tobytes()


@settings(deadline=None, max_examples=30)
@given(MATRICES)
def test_a_sparse_constant_reads_back_bit_by_bit(matrix: NDArray[np.float32]) -> None:
    weight = CscMatrix.from_dense(matrix)
    module = parse(text_of(ModuleOp([SparseConstantOp(weight)])))
    (read,) = module.body.block.ops
    assert isinstance(read, SparseConstantOp)
    assert read.weight.shape == matrix.shape
    for written, back in zip(weight[1:], read.weight[1:], strict=True):
        assert written.tobytes() == back.tobytes()


@settings(deadline=None, max_examples=30)
@given(MATRICES)
def test_a_matrix_is_cut_into_columns_as_scipy_does(matrix: NDArray[np.float32]) -> None:
    weight, expected = CscMatrix.from_dense(matrix), sparse.csc_array(matrix)
    np.testing.assert_array_equal(weight.pointers, expected.indptr)
    np.testing.assert_array_equal(weight.rows, expected.indices)
    np.testing.assert_array_equal(weight.values, expected.data)
    np.testing.assert_array_equal(weight.to_dense(), matrix)
    assert weight.density == (expected.nnz / matrix.size if matrix.size else 0.0)


def test_a_constant_of_too_few_bytes_is_refused() -> None:
    short = DenseIntOrFPElementsAttr(f32_tensor((3,)), BytesAttr(bytes(8)))
    with pytest.raises(VerifyException, match="2 elements for tensor<3xf32>"):
        ConstantOp(short).verify()


def test_constants_are_found_behind_values_and_others_are_not() -> None:
    matrix = np.array([[0, 1], [2, 0]], dtype=np.float32)
    for op in (ConstantOp(matrix), SparseConstantOp(CscMatrix.from_dense(matrix))):
        found = constant_array(op.result)
        assert found is not None
        np.testing.assert_array_equal(found, matrix)
    assert constant_array(test.TestOp(result_types=[dense_floats(matrix).type]).results[0]) is None
