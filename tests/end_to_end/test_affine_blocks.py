"""Networks whose layers end with an activation and an affine block, as PP-LCNetV3 has them: readers of text lines."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.driver.compiler import optimized
from redpebble.kernels.machine import Machine
from redpebble.options import Options
from redpebble.runtime.jit import host_target
from redpebble.tuning.measure_kernels import Tuning
from tests.ort.provider_models import plain_session
from tests.support.image_models import ImageModel

Floats = NDArray[np.float32]

APART = {"Clip", "Div", "HardSigmoid", "HardSwish", "Relu"}
"""Operators of activations, which onnxruntime computes in passes of their own before affine blocks."""


def affine_block(net: ImageModel, x: str, activation: str) -> str:
    """An activation, spelled out or as an operator, and a product and a sum with one number each."""
    name = f"block{len(net.nodes)}"
    net.tensors |= {f"{name}_scale": np.array([1.5], np.float32), f"{name}_shift": np.array([-0.25], np.float32)}
    if activation == "spelled":
        net.tensors |= {key: np.array(number, np.float32) for key, number in (("zero", 0), ("three", 3), ("six", 6))}
        gate = net.node("Clip", net.node("Add", x, "three"), "zero", "six")
        x = net.node("Div", net.node("Mul", x, gate), "six")
    else:
        x = net.node(activation, x)
    return net.node("Add", net.node("Mul", f"{name}_scale", x), f"{name}_shift")


def reader(width: int | str, activation: str = "spelled", *, front: int = 32) -> onnx.ModelProto:
    """A dense front and two layers with zeros, with windows of each channel between all."""
    net = ImageModel((3, 32, 1), density=1.0)
    x = net.conv("x", (front // 2, 3, 3, 3), strides=[2, 2], pads=[1] * 4)
    for channels, outputs, density in ((front // 2, front, 1.0), (front, 64, 0.1), (64, 64, 0.1)):
        net.density = 1.0
        strides = [1, 1] if density == 1.0 else [2, 1]
        window = net.conv(x, (channels, 1, 3, 3), group=channels, pads=[1] * 4, strides=strides)
        net.density = density
        x = affine_block(net, net.conv(affine_block(net, window, activation), (outputs, channels, 1, 1)), activation)
    model = net.model(net.node("GlobalAveragePool", x), x)
    dim = model.graph.input[0].type.tensor_type.shape.dim[3]
    if isinstance(width, str):
        dim.dim_param = width
    else:
        dim.dim_value = width
    return model


def check_alike(found: Sequence[Floats], wanted: Sequence[Floats]) -> None:
    """Sums of thousands differ by their order."""
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * np.abs(theirs).max(initial=0))


@pytest.mark.parametrize("activation", ["spelled", "HardSwish", "Relu"])
@pytest.mark.parametrize("prices", ["emerald_rapids", "zen5"])
def test_a_dense_front_that_onnxruntime_computes_in_many_passes_is_taken(activation: str, prices: str) -> None:
    model = reader(320, activation)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    machine = Machine(16, 48 << 10, 2 << 20, prices=prices)
    found = optimized(model, Options("optimize", tuning=Tuning(host_target(), machine, None, 0)))
    assert len(found.networks) == 1
    left = [node.op_type for node in found.proto.graph.node if not node.domain]
    # the first convolution reads nothing of a layer that may have zeros: a second reading would tell
    assert left == ["Conv"]
    assert not APART.intersection(left)


@pytest.mark.parametrize("activation", ["spelled", "Relu"])
def test_sessions_agree_at_any_width_and_batch(activation: str) -> None:
    model, rng = reader("width", activation), np.random.default_rng(3)
    sizes = [{"batch": batch, "width": width} for batch, width in ((1, 320), (7, 163))]
    ours, theirs = redpebble.session(model, sizes=sizes), plain_session(model)
    for batch, width in ((1, 320), (7, 163), (7, 320), (1, 17), (0, 320)):
        x = rng.standard_normal((batch, 3, 32, width)).astype(np.float32)
        check_alike(ours.run(None, {"x": x}), theirs.run(None, {"x": x}))


@pytest.mark.parametrize("width", [1, 50, 163])
def test_compiled_code_agrees(width: int) -> None:
    model = reader(width, "HardSwish", front=10)
    net = redpebble.compile(model)
    for batch in (1, 7, 0):
        x = np.random.default_rng(batch).standard_normal((batch, 3, 32, width)).astype(np.float32)
        check_alike(net.run(None, {"x": x}), plain_session(model).run(None, {"x": x}))
