"""Convolutions of awkward shapes: channels that fill no vector, empty rows and columns, windows without a place."""

import numpy as np
import pytest

import redpebble
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.lowering.cpu_target import CpuTarget
from tests.ort.provider_models import plain_session
from tests.support.image_models import ImageModel


def test_odd_channels_and_empty_rows_agree_with_onnxruntime_for_any_batch() -> None:
    net = ImageModel((5, 7, 9))
    hidden = net.conv("x", (13, 5, 3, 3), pads=[1, 1, 1, 1])
    net.tensors["w0"][[2, 7]] = 0
    net.tensors["w0"][:, 3] = 0
    result = net.conv(hidden, (3, 13, 1, 1))
    net.tensors["w1"][:, 5] = 0
    model = net.model(result, net.node("MaxPool", hidden, kernel_shape=[2, 2], strides=[2, 2]))
    compiled, plain = redpebble.compile(model, target=CpuTarget.generic()), plain_session(model)
    for batch in (0, 1, 7, 17):
        feeds = net.images(batch)
        for found, wanted in zip(compiled.run(None, feeds), plain.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_nan_reaches_what_its_connections_reach_and_no_other_window() -> None:
    net = ImageModel((5, 7, 9))
    model = net.model(net.conv("x", (13, 5, 3, 3), pads=[1, 1, 1, 1]))
    feeds = net.images(2)
    compiled = redpebble.compile(model, target=CpuTarget.generic())
    (clean,) = compiled.run(None, feeds)
    feeds["x"][1, 1, 3, 4] = np.nan
    (found,) = compiled.run(None, feeds)
    windows, reached = np.zeros(found.shape, dtype=bool), np.zeros(found.shape, dtype=bool)
    windows[1, :, 2:5, 3:6] = True
    # a result reads the value by the tap at its distance, which is turned round
    reached[1, :, 2:5, 3:6] = net.tensors["w0"][:, 1, ::-1, ::-1] != 0
    assert np.isnan(found[reached]).all()
    np.testing.assert_array_equal(found[~windows], clean[~windows])


def test_a_window_larger_than_the_image_is_refused_as_onnxruntime_refuses_it() -> None:
    net = ImageModel((3, 2, 2))
    model = net.model(net.conv("x", (4, 3, 5, 5)))
    with pytest.raises(Exception, match="Invalid input shape"):
        plain_session(model).run(None, net.images(1))
    with pytest.raises(UnsupportedModelError, match="an image smaller than the window, accepted is one that has a"):
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
