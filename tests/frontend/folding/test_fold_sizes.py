"""Sizes that no call changes, and what is computed of them."""

import numpy as np
import onnx_ir
import pytest

from redpebble.frontend.fold_model import fold_sizes
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import Arrays, assert_agrees, model

INTEGERS: Arrays = {"last": np.array(1), "two": np.array(2), "from1": np.array([1]), "to2": np.array([2])}


def folded(nodes: str, shape: list[int | None]) -> onnx_ir.Graph:
    proto = model("(float[n,64] x) => (int64[a] y)", nodes, weights=INTEGERS)
    loaded = onnx_ir.from_proto(proto)
    fold_sizes(loaded, {"x": onnx_ir.Shape(shape)})
    return loaded.graph


@pytest.mark.parametrize(
    ("nodes", "value"),
    [
        ("s = Shape(x) h = Gather(s, last) y = Div(h, two)", 64),
        ("s = Shape(x) h = Slice(s, from1, to2) y = Div(h, two)", [64]),
        ("h = Shape<start=1>(x) y = Div(h, two)", [64]),
    ],
)
def test_a_size_that_is_a_number_becomes_a_constant(nodes: str, value: object) -> None:
    held = folded(nodes, [None, 64]).initializers["h"].const_value
    assert held is not None
    assert held.numpy().tolist() == value
    assert held.dtype == onnx_ir.DataType.INT64


@pytest.mark.parametrize("nodes", ["s = Shape(x) y = Div(s, two)", "s = Size(x) y = Div(s, two)"])
def test_a_size_that_only_a_call_knows_stays(nodes: str) -> None:
    assert "s" not in folded(nodes, [None, 64]).initializers


def test_what_is_computed_of_sizes_is_a_constant_in_the_module() -> None:
    proto = model(
        "(float[n,64] x) => (float[n,64] y)",
        "s = Shape(x) w = Gather(s, last) f = Cast<to=1>(w) r = Sqrt(f) y = Div(x, r)",
        weights=INTEGERS,
    )
    assert "foreign" not in str(import_model(proto, foreign="keep").module)
    assert_agrees(proto)


def test_a_shape_that_the_model_states_wrongly_is_no_fact() -> None:
    proto = model(
        "(float[n,4] x, int64[2] shape) => (int64 y)",
        "h = Reshape(x, shape) s = Shape(h) y = Gather(s, last)",
        weights=INTEGERS,
    )
    stated = proto.graph.value_info.add(name="h")
    stated.type.tensor_type.elem_type = 1
    for size in (2, 2):
        stated.type.tensor_type.shape.dim.add(dim_value=size)
    assert '"ai.onnx::Gather"' in str(import_model(proto, foreign="keep").module)
