"""One code for every length: networks over rows of which only a call knows the length, beside onnxruntime."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import redpebble
from redpebble.ort.sized_session import SizedSession
from tests.ort.provider_models import plain_session
from tests.support.image_models import ImageModel

LENGTHS: Final = (1, 2, 3, 5, 15, 16, 17, 33, 47, 48, 49, 64, 65, 129, 300)

Layers = Callable[[ImageModel, str], str]

WIDTH: Final = 32


def rows_model(layers: Layers, *, density: float = 0.1) -> onnx.ModelProto:
    """Layers on rows [batch, WIDTH, length]."""
    net = ImageModel((), density=density)
    model = net.model(layers(net, "x"))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH, "length"])
    model.graph.input[0].CopyFrom(given)
    return model


def _chain(net: ImageModel, x: str) -> str:
    """Strides, pads on one side, a residual, groups, poolings: all that changes a length, or does not."""
    x = net.node("Relu", net.conv(x, (48, WIDTH, 3), pads=[1, 1], strides=[2]))
    x = net.node("MaxPool", x, kernel_shape=[3], strides=[2], pads=[1, 1])
    y = net.node("Sigmoid", net.conv(x, (48, 48, 4), pads=[1, 1]))
    x = net.node("Add", x, net.node("Relu", net.conv(y, (48, 48, 3), pads=[1, 2])))
    return net.conv(net.node("Relu", x), (40, 48, 3), pads=[2, 2], dilations=[2])


def _rank_4(net: ImageModel, x: str) -> str:
    """Images of height 1, as tf2onnx writes rows."""
    net.tensors["axis"] = np.array([2])
    x = net.conv(net.node("Unsqueeze", x, "axis"), (40, WIDTH, 1, 5), auto_pad="SAME_UPPER")
    x = net.node("MaxPool", net.node("Relu", x), kernel_shape=[1, 2], strides=[1, 2])
    return net.node("Squeeze", net.conv(x, (40, 40, 1, 3), pads=[0, 1, 0, 1], strides=[1, 2]), "axis")


def _halves(net: ImageModel, x: str) -> str:
    x = net.node("MaxPool", net.conv(x, (40, WIDTH, 1)), kernel_shape=[2], strides=[2])
    return net.conv(x, (40, 40, 2), strides=[2], pads=[1, 0])


FORMS: Final[dict[str, Layers]] = {
    "same": lambda net, x: net.conv(x, (40, WIDTH, 5), pads=[2, 2]),
    "auto pads": lambda net, x: net.conv(x, (40, WIDTH, 4), auto_pad="SAME_LOWER"),
    "shorter": lambda net, x: net.conv(x, (40, WIDTH, 4), pads=[1, 1]),
    "longer": lambda net, x: net.conv(x, (40, WIDTH, 1), pads=[0, 3]),
    "stride and dilation": lambda net, x: net.conv(x, (40, WIDTH, 7), strides=[3], dilations=[2], pads=[3, 4]),
    "many taps": lambda net, x: net.conv(x, (8, WIDTH, 64), pads=[31, 32], strides=[2]),
    "groups": lambda net, x: net.conv(x, (40, WIDTH // 4, 3), group=4, pads=[1, 1]),
    "depthwise": lambda net, x: net.conv(net.conv(x, (40, WIDTH, 1)), (40, 1, 3), group=40, strides=[2]),
    "largest": lambda net, x: net.node("MaxPool", net.conv(x, (40, WIDTH, 1)), kernel_shape=[5], pads=[2, 2]),
    "mean": lambda net, x: net.node("AveragePool", net.conv(x, (40, WIDTH, 1)), kernel_shape=[3]),
    "halves": _halves,
    "height 1": _rank_4,
    "mean of pads": lambda net, x: net.node(
        "AveragePool", net.conv(x, (40, WIDTH, 1)), kernel_shape=[3], pads=[1, 1], count_include_pad=1
    ),
    "joined": lambda net, x: net.node(
        "Concat", net.conv(x, (40, WIDTH, 3), pads=[1, 1]), net.conv(x, (8, WIDTH, 1)), axis=1
    ),
    "chain": _chain,
}

SLOW: Final = ("auto pads", "shorter", "longer", "many taps", "groups", "depthwise", "mean of pads")


@pytest.mark.parametrize(
    "form", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in FORMS]
)
def test_code_for_every_length_computes_what_onnxruntime_does(form: str) -> None:
    model = rows_model(FORMS[form])
    ours, plain = redpebble.compile(model), plain_session(model, 1)
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        for batch in (1, 0, 3):
            feeds = {"x": rng.standard_normal((batch, WIDTH, length), np.float32)}
            try:
                (expected,) = plain.run(None, feeds)
            except Exception:
                with pytest.raises(ValueError, match=r"expected \d+ or more"):
                    ours.run(None, feeds)
                continue
            (found,) = ours.run(None, feeds)
            assert isinstance(expected, np.ndarray)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_session_makes_code_once_for_all_lengths() -> None:
    model = rows_model(_chain)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    ours, plain = redpebble.session(model, options), plain_session(model, 1)
    assert not isinstance(ours, SizedSession)
    assert any("SparseNetwork" in node.op_type for node in redpebble.optimize(model).model.graph)
    rng = np.random.default_rng(0)
    for length in LENGTHS[5:]:
        feeds = {"x": rng.standard_normal((2, WIDTH, length), np.float32)}
        np.testing.assert_allclose(ours.run(None, feeds)[0], plain.run(None, feeds)[0], rtol=1e-4, atol=1e-4)


def test_pixels_behind_the_end_of_a_row_are_not_read() -> None:
    model = rows_model(_chain)
    ours = redpebble.compile(model)
    long, short = (np.full((1, WIDTH, length), value, np.float32) for length, value in ((300, np.nan), (130, 1.0)))
    before = ours.run(None, {"x": short})[0].copy()
    ours.run(None, {"x": long})
    np.testing.assert_array_equal(ours.run(None, {"x": short})[0], before)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"auto_pad": "SAME_UPPER", "strides": [2]}, "known channels, height and width"),
        ({"pads": [2, 2]}, None),
    ],
)
def test_what_depends_on_the_length_waits_for_it(attributes: dict[str, Any], words: str | None) -> None:
    placement = redpebble.optimize(rows_model(lambda net, x: net.conv(x, (40, WIDTH, 5), **attributes))).placement
    assert placement is not None
    assert [words is not None and words in line.reason for line in placement.stayed] == [True] * (words is not None)


def test_a_row_as_long_as_an_image_has_pixels_waits_for_its_sizes() -> None:
    """Its length is no size of an input, but a product of two."""

    def rows(net: ImageModel, x: str) -> str:
        net.tensors["rows"] = np.array([0, 0, -1])
        return net.conv(net.node("Reshape", x, "rows"), (40, WIDTH, 3), pads=[1, 1])

    model = rows_model(rows)
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH, "height", "width"])
    model.graph.input[0].CopyFrom(image)
    placement = redpebble.optimize(model).placement
    assert placement is not None
    assert ["known channels, height and width" in line.reason for line in placement.stayed] == [True]
    feeds = {"x": np.random.default_rng(0).standard_normal((2, WIDTH, 5, 17), np.float32)}
    (expected,), (found,) = plain_session(model, 1).run(None, feeds), redpebble.session(model).run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
