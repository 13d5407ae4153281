"""Each operator of a prologue yields what onnxruntime does."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from redpebble.dialect.semantics.array_operators import OPERATORS

Array = NDArray[Any]


class Case(NamedTuple):
    operator: str
    inputs: Sequence[Any]
    attributes: dict[str, Any] = {}
    output: int = TensorProto.INT64


X = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
F = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
B = np.arange(6).reshape(2, 3) % 2 == 0

CASES = [
    Case("Abs", [X - 7]),
    Case("Add", [X, X[:, :1]]),
    Case("And", [B, ~B[:1]], {}, TensorProto.BOOL),
    Case("Concat", [X, X], {"axis": -1}),
    Case("Cos", [F], {}, TensorProto.FLOAT),
    Case("Sin", [F], {}, TensorProto.FLOAT),
    Case("CumSum", [X, np.array(1, np.int64)]),
    Case("DequantizeLinear", [X.astype(np.uint8), np.float32(0.3), np.uint8(7)], {}, TensorProto.FLOAT),
    Case("Div", [X - 7, np.int64(3)]),
    Case("Div", [F, np.float32(0)], {}, TensorProto.FLOAT),
    Case("Equal", [X, X % 5], {}, TensorProto.BOOL),
    Case("Expand", [X[:, :1], np.array([2, 1, 3, 4])]),
    Case("Flatten", [X], {"axis": -1}),
    Case("Flatten", [X], {"axis": 0}),
    Case("Gather", [X, np.array([[-1, 0], [1, 2]])], {"axis": 1}),
    Case("Gather", [F, np.array(1, np.int64)], {}, TensorProto.FLOAT),
    Case("GatherElements", [X, np.array([[[0, 1], [-1, 2]]])], {"axis": 2}),
    Case("GatherND", [X, np.array([[0, 1], [-1, 2]])]),
    Case("GatherND", [X, np.array([[[1], [2]], [[0], [-1]]])], {"batch_dims": 1}),
    Case("Greater", [X, X % 5], {}, TensorProto.BOOL),
    Case("GreaterOrEqual", [X, X % 5], {}, TensorProto.BOOL),
    Case("Identity", [X]),
    Case("IsNaN", [np.where(F > 0, F, np.float32(np.nan))], {}, TensorProto.BOOL),
    Case("Less", [X, X % 5], {}, TensorProto.BOOL),
    Case("LessOrEqual", [X, X % 5], {}, TensorProto.BOOL),
    Case("Log", [np.abs(F)], {}, TensorProto.FLOAT),
    Case("Max", [X]),
    Case("Max", [X, X % 5, np.int64(3)]),
    Case("Min", [X, X % 5, np.int64(3)]),
    Case("Mod", [X - 9, np.int64(5)]),
    Case("Mod", [X - 9, np.int64(5)], {"fmod": 1}),
    Case("Mul", [X, X]),
    Case("Neg", [X]),
    Case("NonZero", [X % 3]),
    Case("Not", [B], {}, TensorProto.BOOL),
    Case("Or", [B, B[::-1]], {}, TensorProto.BOOL),
    Case("Pow", [np.abs(F), np.float32(-0.5)], {}, TensorProto.FLOAT),
    Case("Range", [np.int64(7), np.int64(-2), np.int64(-3)]),
    Case("ReduceMax", [X, np.array([1])], {"keepdims": 0}),
    Case("ReduceMin", [X, np.array([0, -1])]),
    Case("ReduceSum", [X, np.array([1])], {"keepdims": 0}),
    Case("ReduceSum", [X]),
    Case("ReduceSum", [X, np.array([], np.int64)], {"noop_with_empty_axes": 1}),
    Case("Reshape", [X, np.array([0, -1])]),
    Case("ScatterElements", [F[0], np.array([1, -1, 1, 0]), F[1]], {"reduction": "add"}, TensorProto.FLOAT),
    Case("ScatterElements", [X[0], np.array([[2, -1], [0, 0]]), X[1, :2, :2]], {"axis": 1}),
    Case("ScatterND", [X, np.array([[0, 1], [1, -1]]), X[0, :2]]),
    Case("Shape", [X], {"start": 1, "end": -1}),
    Case("Shape", [X]),
    Case("Sign", [X - 4]),
    Case("Size", [X]),
    Case("Slice", [X, np.array([-3, 3]), np.array([99, -99]), np.array([1, 2]), np.array([2, -2])]),
    Case("Slice", [X, np.array([1]), np.array([-1]), np.array([-1])]),
    Case("Slice", [X, np.array([1, 0]), np.array([2, 2])]),
    Case("Squeeze", [X[:, :1], np.array([1])]),
    Case("Sub", [X, X % 5]),
    Case("Tile", [X, np.array([1, 2, 1])]),
    Case("Transpose", [X], {"perm": [2, 0, 1]}),
    Case("Transpose", [X]),
    Case("Trilu", [X, np.array(1, np.int64)]),
    Case("Trilu", [X], {"upper": 0}),
    Case("Unsqueeze", [X, np.array([0, -1])]),
    Case("Where", [B, X[:, :, 0], np.int64(-5)]),
    Case("Xor", [B, B[::-1]], {}, TensorProto.BOOL),
]


def by_onnxruntime(case: Case, arrays: Sequence[Array], outputs: int = 1) -> Sequence[Array]:
    names = [f"x{index}" for index in range(len(arrays))]
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(case.operator, names, results, **case.attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    made = [helper.make_tensor_value_info(name, case.output, None) for name in results]
    model = helper.make_model(helper.make_graph([node], "g", given, made), opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(one) for one in session.run(None, dict(zip(names, arrays, strict=True)))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.operator)
def test_an_operator_yields_what_onnxruntime_does(case: Case) -> None:
    arrays = [np.asarray(array) for array in case.inputs]
    # older opsets than that of the test have axes as an attribute
    (expected,) = by_onnxruntime(case, arrays) if case.operator != "ReduceMax" else [X.max(axis=1)]
    if case.operator == "ReduceMin":
        expected = X.min(axis=(0, 2), keepdims=True)
    found = OPERATORS[case.operator](case.attributes, *arrays)
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected) if found.dtype != np.float32 else np.testing.assert_allclose(
        found, expected, rtol=1e-6
    )


def test_every_operator_is_tested() -> None:
    others = {"Activate", "Cast", "ConstantOfShape", "EdgeList", "ReshapeTo", "Sizes", "Split"}
    assert {case.operator for case in CASES} | others == set(OPERATORS)


def test_cast_names_a_dtype() -> None:
    found = OPERATORS["Cast"]({"to": "bool"}, X)
    np.testing.assert_array_equal(found, X != 0)


def test_a_constant_has_a_value_and_a_dtype() -> None:
    found = OPERATORS["ConstantOfShape"]({"value": 1, "dtype": "int64"}, np.array([2, 3]))
    np.testing.assert_array_equal(found, np.ones((2, 3), np.int64))
    assert np.asarray(OPERATORS["ConstantOfShape"]({}, np.array([2]))).dtype == np.float32


def test_an_activation_of_the_dialect_has_parameters() -> None:
    attributes = {"activation": "clip", "parameters": [-0.5, 0.5]}
    x = np.linspace(-1, 1, 9, dtype=np.float32)
    np.testing.assert_array_equal(OPERATORS["Activate"](attributes, x), x.clip(-0.5, 0.5))


def test_sizes_are_products_of_sizes_of_other_arrays() -> None:
    # [rows * columns / 2, columns^2, 3] of an array [2, 3, 4], rows being axis 1 and columns axis 2
    constant: dict[str, int] = {}
    sizes = [(1, 2, {"rows": 1, "columns": 1}), (1, 1, {"columns": 2}), (3, 1, constant)]
    attributes: dict[str, Any] = {"axes": {"rows": (0, 1), "columns": (0, 2)}, "sizes": sizes}
    np.testing.assert_array_equal(OPERATORS["Sizes"](attributes, X), [6, 16, 3])
    np.testing.assert_array_equal(OPERATORS["Sizes"]({**attributes, "start": 1, "end": 2}, X), [16])


def test_a_reshape_of_the_dialect_copies_axes() -> None:
    assert np.asarray(OPERATORS["ReshapeTo"]({"target": [-2, -1]}, X)).shape == (2, 12)


def test_split_cuts_into_sizes_or_equal_parts() -> None:
    by_sizes = OPERATORS["Split"]({"axis": 2, "outputs": 2}, X, np.array([1, 3]))
    equal = OPERATORS["Split"]({"axis": 1, "outputs": 2}, X)
    assert [part.shape for part in by_sizes] == [(2, 3, 1), (2, 3, 3)]
    assert [part.shape for part in equal] == [(2, 2, 4), (2, 1, 4)]


def test_what_is_not_covered_is_refused() -> None:
    with pytest.raises(ValueError, match="an integer is divided by zero"):
        OPERATORS["Div"]({}, X, np.int64(0))
    with pytest.raises(ValueError, match="expected reduction=none, got another"):
        OPERATORS["ScatterND"]({"reduction": "add"}, X, np.array([[0]]), X[:1])
    with pytest.raises(ValueError, match="expected exclusive=0 and reverse=0, got another"):
        OPERATORS["CumSum"]({"exclusive": 1}, X, np.array(0))
    with pytest.raises(ValueError, match=re.escape("indices have shape [1], updates [2]")):
        OPERATORS["ScatterElements"]({}, X[0, 0], np.array([0]), X[0, 0, :2])


def test_edges_are_counted_from_the_front_and_have_weights() -> None:
    sizes, sources, targets = np.array([4, 2]), np.array([[0], [-1]]), np.array([3, 1], np.int32)
    edges = OPERATORS["EdgeList"]({}, sizes, sources, targets)
    for found, wanted in zip(edges, ([0, 3], [3, 1], [1.0, 1.0]), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert [one.dtype.name for one in edges] == ["int32", "int32", "float32"]
    weighted = OPERATORS["EdgeList"]({}, sizes, sources, targets, np.array([[0.5], [2.0]], np.float32))
    np.testing.assert_array_equal(weighted[2], [0.5, 2.0])
    with pytest.raises(ValueError, match="expected indices of 4 nodes, -4 to 3, got 4"):
        OPERATORS["EdgeList"]({}, sizes, sources, np.array([0, 4]))
    with pytest.raises(ValueError, match="expected indices of 4 nodes, -4 to 3, got -5"):
        OPERATORS["EdgeList"]({}, sizes, np.array([-5, 0]), targets)
    with pytest.raises(ValueError, match="expected fewer than 2147483648 edges and nodes, got 3 and 2147483648"):
        OPERATORS["EdgeList"]({}, np.array([1 << 31]), np.arange(3), np.arange(3))


def test_onnx_names_no_operator_that_the_table_invents() -> None:
    assert {name for name in OPERATORS if not onnx.defs.has(name)} == {"Activate", "EdgeList", "ReshapeTo", "Sizes"}
