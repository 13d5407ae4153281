"""Windows without a place, pads behind the image, and values that are read beyond the pixels of an image."""

import numpy as np
import pytest

import redpebble
from redpebble.frontend.errors import UnsupportedModelError
from tests.ort.provider_models import plain_session
from tests.support.image_models import ImageModel


def test_a_window_larger_than_the_image_is_refused_as_onnxruntime_refuses_it() -> None:
    net = ImageModel((3, 2, 2))
    model = net.model(net.conv("x", (4, 3, 5, 5)))
    with pytest.raises(Exception, match="Invalid input shape"):
        plain_session(model).run(None, net.images(1))
    with pytest.raises(UnsupportedModelError, match="expected an image with a result, got one smaller than the window"):
        redpebble.compile(model)


@pytest.mark.parametrize("before", ["GlobalAveragePool", "GlobalMaxPool", "Pad"])
@pytest.mark.parametrize("after", ["GlobalAveragePool", "Conv"])
def test_what_reads_beyond_an_image_finds_zeros_there(before: str, after: str) -> None:
    net = ImageModel((5, 7, 9))
    net.tensors |= {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 0]), "half": np.array(0.5, np.float32)}
    value = net.node(before, net.conv("x", (6, 5, 3, 3)), *(["pads", "half"] if before == "Pad" else []))
    model = net.model(net.conv(value, (4, 6, 3, 3), pads=[1] * 4) if after == "Conv" else net.node(after, value))
    compiled, feeds = redpebble.compile(model), net.images(2)
    compiled.run(None, {"x": np.full_like(feeds["x"], np.nan)})  # memory that is used again may hold anything
    np.testing.assert_allclose(
        compiled.run(None, feeds)[0], plain_session(model).run(None, feeds)[0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize("dilations", [[1, 1], [1, 2]])
def test_a_window_as_large_as_the_image_that_moves_or_skips_is_not_all_of_it(kind: str, dilations: list[int]) -> None:
    net = ImageModel((5, 2, 3))
    skips = {"dilations": dilations} if kind == "MaxPool" else {}
    model = net.model(net.node(kind, net.conv("x", (6, 5, 1, 1)), kernel_shape=[2, 3], pads=[0, 0, 0, 2], **skips))
    feeds = net.images(7)
    np.testing.assert_allclose(
        redpebble.compile(model).run(None, feeds)[0], plain_session(model).run(None, feeds)[0], rtol=1e-4, atol=1e-5
    )


END_PADS = [[0, 0, 1, 2], [0, 0, 20, 0]]
"""Pads behind the image alone, of which the last ones are tiles by themselves."""


@pytest.mark.parametrize("pads", END_PADS)
def test_pads_behind_the_image_are_zeros_for_a_window_of_one_pixel(pads: list[int]) -> None:
    net = ImageModel((5, 7, 9))
    hidden = net.node("Relu", net.conv("x", (6, 5, 1, 1)))
    padded = net.node("Relu", net.conv(hidden, (6, 6, 1, 1), pads=pads))
    alone = net.conv(hidden, (6, 1, 1, 1), group=6, pads=pads)
    model, feeds = net.model(net.conv(padded, (4, 6, 1, 1)), alone), net.images(2)
    for found, wanted in zip(
        redpebble.compile(model).run(None, feeds), plain_session(model).run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_session_reads_zeros_from_pads_behind_the_image() -> None:
    net = ImageModel((64, 14, 14), density=0.1)
    hidden = net.node("Relu", net.conv("x", (128, 64, 1, 1)))
    hidden = net.node("Relu", net.conv(hidden, (128, 128, 1, 1), pads=[0, 0, 1, 0]))
    model, feeds = net.model(net.conv(hidden, (64, 128, 1, 1))), net.images(2)
    written = redpebble.optimize(model)
    assert written.networks
    np.testing.assert_allclose(
        redpebble.session(written.proto).run(None, feeds)[0],
        plain_session(model).run(None, feeds)[0],
        rtol=1e-4,
        atol=1e-4,
    )


def rounded(net: ImageModel, x: str) -> str:
    """Round values to codes of a scale, and make floats of them again."""
    net.tensors |= {"scale": np.array(0.05, np.float32), "zero": np.array(100, np.uint8)}
    return net.node("DequantizeLinear", net.node("QuantizeLinear", x, "scale", "zero"), "scale", "zero")


def conv_of_codes(net: ImageModel, x: str, shape: tuple[int, ...], **attributes: int | list[int]) -> str:
    """Add a convolution of floats that codes stand for."""
    weight = f"q{len(net.nodes)}"
    net.tensors[weight] = np.rint(50 * np.asarray(net.tensors.pop(net.weights(weight, shape)), np.float32)).astype(
        np.int8
    )
    net.tensors |= {"step": np.array(0.02, np.float32), "none": np.array(0, np.int8)}
    return net.node("Conv", x, net.node("DequantizeLinear", weight, "step", "none"), **attributes)


@pytest.mark.parametrize(
    ("pads", "strides"),
    [
        pytest.param(pads, [stride] * 2, marks=[] if stride == number + 1 else pytest.mark.slow)
        for number, pads in enumerate(END_PADS)
        for stride in (1, 2)
    ],
)
def test_pads_behind_an_image_of_codes_are_zeros_for_a_window_of_one_pixel(pads: list[int], strides: list[int]) -> None:
    net = ImageModel((8, 7, 9))
    hidden = rounded(net, conv_of_codes(net, rounded(net, "x"), (8, 8, 1, 1)))
    hidden = rounded(net, conv_of_codes(net, hidden, (12, 8, 1, 1), pads=pads, strides=strides))
    model, feeds = net.model(rounded(net, conv_of_codes(net, hidden, (4, 12, 1, 1)))), net.images(2)
    np.testing.assert_array_equal(
        redpebble.compile(model).run(None, feeds)[0], plain_session(model).run(None, feeds)[0]
    )
