"""Convolutions over what is computed of inputs: of letters, samples and features of any length."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import redpebble
from redpebble.frontend.reading.free_axes import axes_in_question, dims_of
from redpebble.frontend.reading.model_source import read_model
from redpebble.ort.sized_session import SizedSession
from tests.ort.provider_models import plain_session
from tests.support.image_models import ImageModel

Dims = list[str | int | None]


def text_model(*, width: int = 64, ids: Dims | None = None, needs_sizes: bool = False) -> onnx.ModelProto:
    """Convolutions over embeddings of letters [batch, length], whose mean decides between two classes.

    One that `needs_sizes` has a stride, and pads that depend on the length.
    """
    window: dict[str, Any] = {"auto_pad": "SAME_UPPER", "strides": [2]} if needs_sizes else {"pads": [2, 2]}
    net = ImageModel((), density=1.0)
    letters = net.node("Gather", net.weights("letters", (40, width)), "x")
    x, net.density = net.node("Transpose", letters, perm=[0, 2, 1]), 0.05
    for _ in range(3):
        x = net.node("Relu", net.conv(x, (width, width, 5), **window))
    net.density = 1.0
    model = net.model(net.node("MatMul", net.node("ReduceMean", x, axes=[2], keepdims=0), net.weights("w", (width, 2))))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.INT64, ids or ["batch", "length"]))
    return model


def letters_of(*shape: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).integers(0, 40, shape)}


def test_the_batch_is_no_axis_in_question() -> None:
    asked = axes_in_question(dims_of(read_model(text_model())))
    assert (asked.images, asked.others) == ({}, {"x": ("", "length")})
    assert asked.every == {"x": ("batch", "length")}


def test_a_session_has_code_for_each_length_of_letters_that_pads_depend_on() -> None:
    model = text_model(needs_sizes=True)
    ours, plain = redpebble.session(model, sizes=[{"length": 40}, {"length": 23}]), plain_session(model, 1)
    assert isinstance(ours, SizedSession)
    assert ours.code.ready_sizes() == [{"length": 40}, {"length": 23}]
    for shape in ((1, 40), (17, 23), (0, 40), (1, 5), (7, 40)):
        np.testing.assert_allclose(
            ours.run(None, letters_of(*shape))[0], plain.run(None, letters_of(*shape))[0], rtol=1e-4, atol=1e-4
        )


def test_sizes_that_no_name_states_are_called_by_input_and_axis() -> None:
    model = text_model(ids=["N", None], needs_sizes=True)
    refused = redpebble.optimize(model).placement
    assert refused is not None
    assert any("--size x.1=N states them" in line.reason for line in refused.stayed)
    assert redpebble.optimize(model, sizes={"x.1": 40}).networks


def test_a_convolution_whose_image_no_size_makes_known_is_told_of_none() -> None:
    net = ImageModel((), density=0.05)
    x = net.node("Reshape", "x", net.node("Cast", "shape", to=TensorProto.INT64))
    model = net.model(net.node("Relu", net.conv(x, (16, 16, 3), pads=[1, 1])))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 64]))
    model.graph.input.append(helper.make_tensor_value_info("shape", TensorProto.INT32, [3]))
    assert not isinstance(redpebble.session(model), SizedSession)


@pytest.mark.parametrize("shape", [(1, 40), (3, 17)])
def test_compile_makes_code_for_each_length_of_features(shape: tuple[int, int]) -> None:
    net = ImageModel((3, 1, 1), density=0.05)
    x = net.node("Relu", net.conv(net.node("Transpose", "x", perm=[0, 2, 1]), (16, 8, 3), pads=[1, 1]))
    model = net.model(x)
    text = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 8])
    model.graph.input[0].CopyFrom(text)
    feeds = {"x": np.random.default_rng(0).standard_normal((*shape, 8), np.float32)}
    found, wanted = (one.run(None, feeds) for one in (redpebble.compile(model), plain_session(model, 1)))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)
