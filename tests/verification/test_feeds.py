from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from redpebble.verification.feeds import inputs_for
from tests.models.zoo_oracle import run


def identity(dtype: ir.DataType, dims: list[int | str | None] | None) -> ir.Model:
    x = ir.val("x", dtype=dtype, shape=None if dims is None else ir.Shape(dims))
    node = ir.node("Identity", [x])
    y = node.outputs[0]
    y.name, y.type, y.shape = "y", x.type, x.shape
    return ir.Model(ir.Graph([x], [y], nodes=[node], opset_imports={"": 21}, name="identity"), ir_version=10)


def parsed(text: str) -> ir.Model:
    return ir.from_onnx_text('<ir_version: 10, opset_import: ["" : 21]>\n' + text)


RUNNABLE = [
    ir.DataType.FLOAT,
    ir.DataType.DOUBLE,
    ir.DataType.FLOAT16,
    *(ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64),
    *(ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64),
    ir.DataType.BOOL,
    ir.DataType.STRING,
]


@pytest.mark.parametrize("dims", [["batch", 5], []], ids=["rows", "one value"])
@pytest.mark.parametrize("dtype", RUNNABLE)
def test_onnxruntime_takes_the_feeds_of_every_type(dtype: ir.DataType, dims: list[int | str | None]) -> None:
    model = identity(dtype, dims)
    feeds = inputs_for(model, 3, np.random.default_rng(0))
    outputs = run(model, feeds)
    assert outputs[0].tolist() == feeds["x"].tolist()


@pytest.mark.parametrize("dtype", [kind for kind in ir.DataType if kind.name not in ("UNDEFINED", "STRING")])
def test_feeds_have_the_type_of_the_input_and_fit_it(dtype: ir.DataType) -> None:
    x = inputs_for(identity(dtype, [300]), 1, np.random.default_rng(0))["x"]
    assert (x.shape, x.dtype) == ((300,), dtype.numpy())
    assert len({str(value) for value in x}) > 1
    if dtype.is_integer():
        assert x.astype(np.int64).min() == 0


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        (["batch", 4], (6, 4)),
        (["rows", "columns"], (6, 8)),
        (["n", "n"], (6, 6)),
        ([None, None, 2], (6, 8, 2)),
        ([1, 4], (1, 4)),
        ([2, "n"], (2, 8)),
        ([], ()),
    ],
)
def test_the_first_dimension_is_the_batch_when_symbolic(dims: list[int | str | None], shape: tuple[int, ...]) -> None:
    assert inputs_for(identity(ir.DataType.FLOAT, dims), 6, np.random.default_rng(0))["x"].shape == shape


def test_a_symbol_has_one_size_in_all_inputs() -> None:
    model = parsed("agraph (float[steps, n, 3] a, float[n, 2] b) => (float[n, 2] y) { y = Identity (b) }")
    feeds = inputs_for(model, 5, np.random.default_rng(0))
    assert [feeds[name].shape for name in ("a", "b")] == [(5, 5, 3), (5, 2)]


def test_an_empty_batch_gives_empty_feeds() -> None:
    assert inputs_for(identity(ir.DataType.INT64, ["batch", 4]), 0, np.random.default_rng(0))["x"].shape == (0, 4)


def test_indices_stay_inside_what_they_pick_from() -> None:
    model = parsed(
        """agraph (int64[batch, s] ids, int32[batch, s] kinds, int64[batch, s] mask) => (float[batch, s, 2] y)
        <float[50, 2] words = {0.0}, float[3, 2] sorts = {0.0}> {
            a = Gather (words, ids)
            k = Cast <to = 7> (kinds)
            b = Gather <axis = -2> (sorts, k)
            y = Add (a, b)
        }"""
    )
    feeds = inputs_for(model, 100, np.random.default_rng(0))
    assert [int(feeds[name].max()) for name in ("ids", "kinds", "mask")] == [49, 2, 1]


def test_an_input_with_an_initializer_is_left_alone() -> None:
    model = parsed("agraph (float[n, 2] x, float[2] w = {1.0, 2.0}) => (float[n, 2] y) { y = Mul (x, w) }")
    assert list(inputs_for(model, 1, np.random.default_rng(0))) == ["x"]


def test_a_given_shape_wins() -> None:
    model = identity(ir.DataType.FLOAT, None)
    assert inputs_for(model, 1, np.random.default_rng(0), {"x": (2, 3)})["x"].shape == (2, 3)


def test_the_same_seed_gives_the_same_feeds() -> None:
    model = identity(ir.DataType.FLOAT, ["batch", 4])
    first, second = (inputs_for(model, 3, np.random.default_rng(5))["x"] for _ in range(2))
    assert np.array_equal(first, second)


def test_what_cannot_be_fed_is_refused() -> None:
    rng = np.random.default_rng(0)
    typeless: dict[str, Any] = {"x": (1,)}
    with pytest.raises(ValueError, match=r"^batch: expected 0 or more, got -1$"):
        inputs_for(identity(ir.DataType.FLOAT, [1]), -1, rng)
    with pytest.raises(ValueError, match=r"^input 'x': expected a shape for it, as its rank is unknown, got none$"):
        inputs_for(identity(ir.DataType.FLOAT, None), 1, rng)
    with pytest.raises(ValueError, match=r"^expected a shape for x, got one for 'z'$"):
        inputs_for(identity(ir.DataType.FLOAT, [1]), 1, rng, {"z": (1,)})
    sequence = identity(ir.DataType.FLOAT, [1])
    sequence.graph.inputs[0].type = ir.SequenceType(ir.TensorType(ir.DataType.FLOAT))
    with pytest.raises(ValueError, match=r"^input 'x': expected a tensor, got Sequence\(.*$"):
        inputs_for(sequence, 1, rng, typeless)
    sequence.graph.inputs[0].type = None
    with pytest.raises(ValueError, match=r"^input 'x': expected a tensor, got an unknown type$"):
        inputs_for(sequence, 1, rng, typeless)
