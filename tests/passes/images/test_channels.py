"""Convolutions whose channels are dead or equal: the passes keep the function, and take those channels out."""

import numpy as np
import onnx
import pytest

from redpebble.dialect.ops.images import Conv2dOp, Depthwise2dOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.tensors import shape_of
from redpebble.options import Options
from redpebble.passes.analysis.weights import weight_of
from redpebble.pipeline import build
from redpebble.sparse.csr import CscMatrix
from tests.ort.provider_models import plain_session
from tests.support.image_models import ImageModel

CHANNELS = 12


def separable(seed: int, pads: int) -> onnx.ModelProto:
    """3x3, pooling, 1x1, depthwise 3x3, 1x1: of 12 channels 3 are not read, 3 are constant, some are equal."""
    net, rng = ImageModel((CHANNELS, 9, 8), seed=seed, density=0.4), np.random.default_rng(seed)
    x = net.node("Relu", net.conv("x", (CHANNELS, CHANNELS, 3, 3), pads=[pads] * 4))
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[1, 1])
    x = net.node("Relu", net.conv(x, (CHANNELS, CHANNELS, 1, 1)))
    x = net.node("Relu", net.conv(x, (CHANNELS, 1, 3, 3), pads=[pads] * 4, group=CHANNELS))
    y = net.conv(x, (CHANNELS, CHANNELS, 1, 1))
    first, second, taps, last = (array for name, array in net.tensors.items() if name.startswith("w"))
    for weight in (second, last):
        weight[:, rng.permutation(CHANNELS)[:3]] = 0
    first[rng.permutation(CHANNELS)[:3]] = 0
    biases = [array for name, array in net.tensors.items() if name.startswith("b")]
    for array in (second, taps, *biases[1:3]):
        array[1::4] = array[0::4]
    return net.model(y)


@pytest.mark.parametrize("pads", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_dead_and_equal_channels_go_and_the_function_stays(seed: int, pads: int) -> None:
    model = separable(seed, pads)
    module = build(model, Options(), until="simplify")
    widths = [shape_of(op.result)[1] for op in module.walk() if isinstance(op, Conv2dOp | Depthwise2dOp)]
    assert max(widths[:3]) <= CHANNELS - 3
    assert widths[-1] == CHANNELS  # those are returned
    x = np.random.default_rng(seed).standard_normal((2, CHANNELS, 9, 8)).astype(np.float32)
    (wanted,) = plain_session(model, 1).run(None, {"x": x})
    (found,) = interpret(module, {"x": x.astype(np.float64)})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_channels_with_uneven_connections_are_ordered_and_the_function_stays() -> None:
    net, rng = ImageModel((CHANNELS, 9, 8), seed=1), np.random.default_rng(0)
    x = net.node("Relu", net.conv("x", (24, CHANNELS, 3, 3), pads=[1] * 4))
    x = net.node("Relu", net.conv(x, (24, 1, 3, 3), pads=[1] * 4, group=24))
    y = net.conv(net.node("MaxPool", x, kernel_shape=[2, 2]), (16, 24, 3, 3))
    name = [name for name in net.tensors if name.startswith("w")][-1]
    share = np.linspace(0.02, 0.9, 24)[:, None, None]
    net.tensors[name] = np.where(rng.random((16, 24, 3, 3)) < share, net.tensors[name], 0)
    model = net.model(y)
    module = build(model, Options(), until="simplify")
    convolutions = [op for op in module.walk() if isinstance(op, Conv2dOp)]
    weight = weight_of(convolutions[-1].weight)
    assert isinstance(weight, CscMatrix)
    counts = np.bincount(weight.rows // 9, minlength=24)
    assert (np.diff(counts) <= 0).all()
    images = net.images(2)["x"]
    (wanted,) = plain_session(model, 1).run(None, {"x": images})
    (found,) = interpret(module, {"x": images.astype(np.float64)})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
