"""Windows of many taps: poolings axis by axis, and long ones over sound."""

from typing import Any

import numpy as np
import pytest

import redpebble
from redpebble.frontend.errors import UnsupportedModelError
from tests.end_to_end.agreement import assert_close
from tests.ort.provider_models import plain_session
from tests.support.image_models import ImageModel

POOLINGS: list[dict[str, Any]] = [
    {"kernel_shape": [13, 13], "pads": [6] * 4},
    {"kernel_shape": [5, 7], "strides": [2, 3], "pads": [1, 2, 3, 4]},
    {"kernel_shape": [5, 4], "dilations": [2, 2], "pads": [4, 1, 3, 2]},
    {"kernel_shape": [6, 5], "strides": [4, 3], "ceil_mode": 1, "pads": [1, 0, 2, 1]},
    {"kernel_shape": [16, 17], "strides": [16, 1]},
]


@pytest.mark.parametrize("attributes", POOLINGS, ids=str)
def test_the_largest_of_a_window_is_found_axis_by_axis(attributes: dict[str, Any]) -> None:
    net = ImageModel((3, 17, 19))
    model = net.model(net.node("MaxPool", "x", **attributes))
    compiled, original = redpebble.compile(model), plain_session(model)
    for batch in (0, 1, 7):
        feeds = net.images(batch)
        feeds["x"][:1, 1, 3] = np.inf
        assert_close(compiled.run(None, feeds), original.run(None, feeds))


@pytest.mark.parametrize(
    ("pads", "refusal"),
    [
        ({"auto_pad": "SAME_UPPER"}, "expected auto_pad=NOTSET or VALID beside dilations, got SAME_UPPER"),
        ({"pads": [4, 4, 5, 4]}, r"expected fewer pads than taps, got pads \[4, 4, 5, 4\]"),
    ],
)
def test_a_pooling_of_other_pads_is_refused_in_a_line(pads: dict[str, Any], refusal: str) -> None:
    net = ImageModel((3, 17, 19))
    model = net.model(net.node("MaxPool", "x", kernel_shape=[4, 5], dilations=[3, 2], **pads))
    with pytest.raises(UnsupportedModelError, match=refusal):
        redpebble.compile(model)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 1024, 1), (2, 700)])
def test_a_window_of_512_taps_agrees(shape: tuple[int, ...]) -> None:
    net = ImageModel(shape)
    taps, rank = (512, 1)[: len(shape) - 1], len(shape) - 1
    pads = {"pads": [254, 0][:rank] * 2, "strides": [4, 1][:rank]}
    model = net.model(net.node("Relu", net.conv("x", (7, shape[0], *taps), **pads)))
    compiled, original = redpebble.compile(model), plain_session(model)
    for batch in (1, 3):
        feeds = net.images(batch)
        (ours,), (theirs,) = compiled.run(None, feeds), original.run(None, feeds)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)  # a thousand products each
