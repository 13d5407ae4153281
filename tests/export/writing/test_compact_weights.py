"""Compact weights: what onnxruntime and the reference evaluator make of them is the matrix, and they are small."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from redpebble.export.writing.compact_weights import SINCE, CompactWeight, compact, emit_decoding
from redpebble.export.writing.node_builder import Array, NodeBuilder
from redpebble.sparse.csr import CscMatrix
from tests.export.export_oracle import answers

Floats = NDArray[np.float32]


class Literals:
    """Constant nodes; there are no other constants here."""

    def __init__(self, nodes: list[ir.Node]) -> None:
        self._nodes = nodes

    def plain(self, value: object) -> ir.Value:
        raise AssertionError

    def row(self, value: object) -> ir.Value:
        raise AssertionError

    def matrix(self, value: object) -> tuple[ir.Value, bool]:
        raise AssertionError

    def edges(self, value: object) -> tuple[ir.Value, ir.Value]:
        raise AssertionError

    def literal(self, array: Array) -> ir.Value:
        self._nodes.append(ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(array))], num_outputs=1))
        return self._nodes[-1].outputs[0]

    def add_part(self, value: object, part: str, array: Array) -> ir.Value:
        raise AssertionError

    def add_sparse(self, value: object, part: str, matrix: CscMatrix) -> ir.Value:
        raise AssertionError


def lookup(value: object) -> ir.Value:
    raise AssertionError


def decoder(weight: CompactWeight) -> onnx.ModelProto:
    """A model without inputs that yields the matrix."""
    values, gaps = (
        ir.Value(name=name, const_value=ir.tensor(array, name=name), type=ir.TensorType(ir.tensor(array).dtype))
        for name, array in (("values", weight.values), ("gaps", weight.gaps))
    )
    nodes: list[ir.Node] = []
    matrix = emit_decoding(weight.shape, values, gaps, NodeBuilder(SINCE, Literals(nodes), lookup, nodes))
    matrix.name, matrix.type, matrix.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(weight.shape)
    graph = ir.Graph([], [matrix], nodes=nodes, initializers=[values, gaps], opset_imports={"": SINCE}, name="decoder")
    proto = ir.to_proto(ir.Model(graph, ir_version=8))
    onnx.checker.check_model(proto, full_check=True)  # pyright: ignore[reportUnknownMemberType]
    return proto


def assert_decodes(matrix: Floats, *, transposed: bool) -> CompactWeight:
    weight = compact(CscMatrix.from_dense(matrix), transposed=transposed)
    expected = matrix.T if transposed else matrix
    proto = decoder(weight)
    (by_onnxruntime,) = answers(proto, {})
    (by_reference,) = ReferenceEvaluator(proto).run(None, {})  # pyright: ignore[reportUnknownMemberType]
    np.testing.assert_array_equal(by_onnxruntime, expected)
    np.testing.assert_array_equal(by_reference, expected)
    return weight


def sparse(shape: tuple[int, int], density: float, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * (rng.random(shape) < density)).astype(np.float32)


@settings(deadline=None, max_examples=40, derandomize=True, database=None)
@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from([0.0, 0.001, 0.02, 0.3, 1.0]),
    st.integers(0, 1000),
    st.booleans(),
)
def test_a_decoded_matrix_is_the_one_encoded(
    shape: tuple[int, int], density: float, seed: int, transposed: bool
) -> None:
    assert_decodes(sparse(shape, density, seed), transposed=transposed)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("density", [0.2, 0.1, 0.05])
def test_a_pruned_weight_takes_five_bytes_a_connection(density: float, transposed: bool) -> None:
    matrix = sparse((300, 257), density, 0)
    weight = assert_decodes(matrix, transposed=transposed)
    assert weight.gaps.dtype == np.uint8
    assert weight.nbytes == 5 * np.count_nonzero(matrix)


@pytest.mark.parametrize(("greatest", "size"), [(127, 2), (128, 5)])
def test_integers_of_eight_bits_take_two_bytes_a_connection(greatest: int, size: int) -> None:
    matrix = np.rint(sparse((300, 257), 0.1, 0) * 20)
    matrix[5, 7], matrix[8, 9] = greatest, -128
    weight = assert_decodes(matrix, transposed=False)
    assert weight.nbytes == size * np.count_nonzero(matrix)


def test_a_very_sparse_weight_takes_two_bytes_for_a_gap() -> None:
    matrix = sparse((3000, 200), 0.001, 0)
    weight = assert_decodes(matrix, transposed=False)
    assert weight.gaps.dtype == np.uint16
    assert weight.nbytes == 6 * np.count_nonzero(matrix)


@pytest.mark.parametrize("place", [0, 254, 255, 256, 510, 511, 65535, 65536, 199_999])
def test_a_gap_wider_than_its_type_is_bridged(place: int) -> None:
    matrix = np.zeros((400, 500), dtype=np.float32)
    matrix.flat[place] = 3.0
    assert_decodes(matrix, transposed=False)
    assert_decodes(np.ascontiguousarray(matrix.T), transposed=True)


def test_what_is_not_finite_is_kept() -> None:
    assert_decodes(np.array([[0.0, np.inf], [-np.inf, np.nan]], dtype=np.float32), transposed=False)
