"""Transposed convolutions and DepthToSpace: channels become pixels."""

from typing import Any

import numpy as np
import onnx_ir
import pytest

import redpebble
from redpebble.frontend.errors import UnsupportedModelError
from tests.end_to_end.agreement import assert_close
from tests.ort.provider_models import plain_session
from tests.support.image_models import ImageModel

Attributes = dict[str, Any]

FORMS: list[tuple[tuple[int, ...], Attributes]] = [
    ((2, 2), {"strides": [2, 2]}),
    ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ((3, 2), {"strides": [3, 2], "pads": [0, 1, 2, 0]}),
    ((3, 3), {"strides": [2, 3], "dilations": [2, 3], "pads": [1, 0, 0, 2]}),
    ((1, 1), {"strides": [3, 2]}),
    ((2, 1), {"strides": [3, 4], "output_padding": [1, 2]}),
    ((3, 3), {"dilations": [2, 1]}),
    ((3, 5), {"pads": [2, 4, 2, 4]}),
    ((3, 3), {"pads": [3, 4, 2, 3]}),
    ((5, 4), {"strides": [4, 4], "output_shape": [20, 26]}),
    ((3, 3), {"strides": [2, 2], "output_shape": [8, 12]}),
    ((5, 4), {"strides": [2, 3], "output_shape": [10, 21], "auto_pad": "SAME_UPPER"}),
    ((4, 4), {"strides": [2, 3], "output_shape": [9, 20], "auto_pad": "SAME_LOWER"}),
    ((5, 4), {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    ((3, 4), {"strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    ((3, 4), {"strides": [2, 3], "auto_pad": "VALID"}),
]


@pytest.mark.parametrize(
    ("kernel", "attributes", "groups"),
    [
        # groups have to do with the weight alone: each form has one number of them, the other one is slow
        pytest.param(*form, groups, marks=[pytest.mark.slow] if (index + number) % 2 else [])
        for index, form in enumerate(FORMS)
        for number, groups in enumerate((1, 3))
    ],
    ids=str,
)
def test_a_transposed_convolution_agrees(kernel: tuple[int, ...], attributes: Attributes, groups: int) -> None:
    net = ImageModel((6, 5, 7))
    weight = net.weights("t", (6, 9 // groups, *kernel))
    form = {"kernel_shape": [*kernel], "group": groups, **attributes}
    y = net.node("ConvTranspose", "x", weight, net.channel_values("c", 9), **form)
    scale, shift = (net.channel_values(name, 9) for name in ("scale", "shift"))
    mean, variance = net.channel_values("mean", 9), net.channel_values("variance", 9)
    net.tensors[variance] = np.abs(net.tensors[variance]).astype(np.float32)
    model = net.model(net.node("Relu", net.node("BatchNormalization", y, scale, shift, mean, variance)))
    compiled, original = redpebble.compile(model), plain_session(model)
    for batch in (0, 1, 3):
        feeds = net.images(batch)
        assert_close(compiled.run(None, feeds), original.run(None, feeds))


@pytest.mark.parametrize(
    "attributes", [{"strides": [2]}, {"strides": [3], "pads": [1, 2], "output_padding": [2], "dilations": [2]}]
)
def test_a_transposed_convolution_of_signals_agrees(attributes: Attributes) -> None:
    net = ImageModel((4, 11))
    y = net.node("ConvTranspose", "x", net.weights("t", (4, 5, 4)), **attributes)
    model = net.model(net.conv(net.node("Relu", y), (3, 5, 3), pads=[1, 1]))
    compiled, original = redpebble.compile(model), plain_session(model)
    for batch in (1, 7):
        feeds = net.images(batch)
        assert_close(compiled.run(None, feeds), original.run(None, feeds))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_agrees(mode: str) -> None:
    net = ImageModel((5, 4, 9))
    y = net.node("DepthToSpace", net.conv("x", (12, 5, 3, 3), pads=[1] * 4), blocksize=2, mode=mode)
    scale, shift = (net.channel_values(name, 3) for name in ("scale", "shift"))
    mean, variance = net.channel_values("mean", 3), net.channel_values("variance", 3)
    net.tensors[variance] = np.abs(net.tensors[variance]).astype(np.float32)
    z = net.node("Relu", net.node("BatchNormalization", y, scale, shift, mean, variance))
    model = net.model(net.conv(z, (4, 3, 3, 3), pads=[1] * 4))
    compiled, original = redpebble.compile(model), plain_session(model)
    for batch in (0, 1, 17):
        feeds = net.images(batch)
        assert_close(compiled.run(None, feeds), original.run(None, feeds))


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 2])
def test_a_session_and_a_file_without_our_library_agree(dimensions: int) -> None:
    net = ImageModel((16, *([400] if dimensions == 1 else [40, 40])), density=0.05)
    taps, pads = (3,) * dimensions, {"pads": [1] * 2 * dimensions}
    x = net.node("Relu", net.conv("x", (64, 16, *taps), **pads))
    x = net.node("Relu", net.conv(x, (128, 64, *taps), **pads))
    weight = net.weights("t", (128, 64, *[4] * dimensions))
    x = net.node("Relu", net.node("ConvTranspose", x, weight, strides=[2] * dimensions, **pads))
    model = net.model(net.conv(x, (64, 64, *taps), **pads))
    optimized = onnx_ir.to_proto(redpebble.optimize(model, target="ort").model)
    assert [node.op_type for node in optimized.graph.node] == ["SparseNetwork_0"]
    original, plain, ours = plain_session(model), plain_session(optimized), redpebble.session(model)
    for batch in (0, 1, 3):
        feeds = net.images(batch)
        (expected,) = (np.asarray(one) for one in original.run(None, feeds))
        for session in (plain, ours):
            (found,) = session.run(None, feeds)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max(initial=0.0))


def test_a_form_that_is_not_covered_is_refused_in_a_line() -> None:
    net = ImageModel((4, 5, 5))
    model = net.model(net.node("ConvTranspose", "x", net.weights("t", (4, 3, 3, 3)), output_shape=[9, 30]))
    with pytest.raises(UnsupportedModelError, match="expected a result of 1 to 7 pixels along an axis, got 9"):
        redpebble.compile(model)
