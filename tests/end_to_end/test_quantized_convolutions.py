"""Convolutional networks that are pruned and quantized: the same bytes as onnxruntime's, in every form."""

from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from tests.end_to_end.test_quantized import needs_vnni, networks_of, outcome
from tests.support.image_models import ImageModel
from tests.support.quantized_models import Form, dynamically_quantized, quantized_images

Floats = NDArray[np.float32]

STATIC: list[tuple[Form, str, bool]] = [
    ("qdq", "QUInt8", True),
    ("qdq", "QInt8", False),
    ("operator", "QUInt8", True),
    ("operator", "QInt8", False),
]
QUICK: list[tuple[Form, str, bool]] = [("qdq", "QUInt8", True), ("operator", "QInt8", False)]
"""Two of them, in which each choice is once."""


class Network:
    """A network of convolutions under construction, x [batch, 3, size, size]."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(0)

    def conv(self, x: str, sizes: tuple[int, int, int], density: float = 0.1, stride: int = 1, group: int = 1) -> str:
        """Add a convolution of channels, outputs and taps along each axis."""
        channels, outputs, taps = sizes
        name = f"c{len(self.nodes)}"
        weight = self._rng.standard_normal((outputs, channels // group, taps, taps))
        weight *= (self._rng.random(weight.shape) < density) / np.sqrt(channels // group * taps * taps * density / 2)
        arrays = {f"w_{name}": weight, f"b_{name}": self._rng.standard_normal(outputs) / 10}
        self.weights += [numpy_helper.from_array(array.astype(np.float32), key) for key, array in arrays.items()]
        attributes = {"pads": [taps // 2] * 4, "strides": [stride] * 2, "group": group}
        return self.node("Conv", x, *arrays, name=name, **attributes)

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: object) -> str:
        """Add a node with one output."""
        result = name or f"v{len(self.nodes)}"
        node = helper.make_node(operator, list(inputs), [result], name=f"node_{result}")
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return result

    def model(self, output: str, size: int) -> onnx.ModelProto:
        """Return the model that yields a value."""
        x, y = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", ["batch", 3, size, size]), (output, None))
        )
        graph = helper.make_graph(self.nodes, "images", [x], [y], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def residual(size: int = 32, density: float = 0.1, *, mean: bool = True) -> onnx.ModelProto:
    """A stem, a pooling, a block with a shortcut, one that halves the image; the mean of what is left."""
    net = Network()
    stem = net.node("Relu", net.conv("x", (3, 64, 3), 1.0))
    x = net.node("MaxPool", stem, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inner = net.conv(net.node("Relu", net.conv(x, (64, 64, 3), density)), (64, 64, 3), density)
    x = net.node("Relu", net.node("Add", inner, x))
    inner = net.conv(net.node("Relu", net.conv(x, (64, 128, 3), density, 2)), (128, 128, 3), density)
    x = net.node("Relu", net.node("Add", inner, net.conv(x, (64, 128, 1), density, 2)))
    return net.model(net.node("GlobalAveragePool", x) if mean else x, size)


def images(samples: int, size: int = 32) -> Floats:
    return np.random.default_rng(samples).standard_normal((samples, 3, size, size), dtype=np.float32)


def share_of_a_step(found: Floats, expected: Floats) -> float:
    """Return the share of values that differ, which do so by less than a hundredth of the largest one."""
    assert np.abs(found - expected).max() <= 0.01 * np.abs(expected).max()
    return float(np.count_nonzero(found != expected)) / found.size


@needs_vnni
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, id="_".join(map(str, form)), marks=[] if form in QUICK else [pytest.mark.slow])
        for form in STATIC
    ],
)
def test_static_forms_give_the_same_bytes(form: tuple[Form, str, bool], tmp_path: Path) -> None:
    written, activations, per_channel = form
    model = quantized_images(residual(), tmp_path, written, activations, per_channel=per_channel)
    session, compiled = redpebble.session(model), redpebble.compile(model)
    assert networks_of(model).count("ours") == 1
    for samples in (1, 3):
        x = images(samples)
        expected = outcome(model, x)
        # the mean of an image may be rounded to the next code
        assert share_of_a_step(session.run(None, {"x": x})[0], expected) < 0.02
        assert share_of_a_step(compiled.run(None, {"x": x})[0], expected) < 0.02


@needs_vnni
def test_the_function_of_a_node_computes_the_same(tmp_path: Path) -> None:
    model = quantized_images(residual(), tmp_path, "qdq", "QUInt8", per_channel=True)
    x = images(2)
    written = onnx_ir.to_proto(redpebble.optimize(model, target="ort").model)
    assert share_of_a_step(outcome(written, x), outcome(model, x)) < 0.02


@needs_vnni
@pytest.mark.parametrize(
    ("weights", "per_channel"),
    [
        ("QUInt8", True),
        pytest.param("QUInt8", False, marks=pytest.mark.slow),
        pytest.param("QInt8", True, marks=pytest.mark.slow),
        pytest.param("QInt8", False, marks=pytest.mark.slow),
    ],
)
def test_codes_that_a_call_finds_give_the_same_bits(weights: str, per_channel: bool, tmp_path: Path) -> None:
    model = dynamically_quantized(residual(mean=False), tmp_path, weights, per_channel=per_channel, operators=["Conv"])
    session, compiled = redpebble.session(model), redpebble.compile(model, threads=2)
    assert networks_of(model) == ["ours"]
    for samples in (1, 3):
        x = images(samples)
        expected = outcome(model, x)
        assert np.array_equal(session.run(None, {"x": x})[0], expected)
        assert np.array_equal(compiled.run(None, {"x": x})[0], expected)


@needs_vnni
def test_the_function_of_a_node_finds_the_same_codes(tmp_path: Path) -> None:
    model = dynamically_quantized(residual(mean=False), tmp_path, "QUInt8", operators=["Conv"])
    written, x = onnx_ir.to_proto(redpebble.optimize(model, target="ort").model), images(2)
    assert np.array_equal(outcome(written, x), outcome(model, x))


def quantized_in(form: str, model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    if form == "dynamic":
        return dynamically_quantized(model, folder, "QUInt8", operators=["Conv"])
    return quantized_images(model, folder, "qdq" if form == "qdq" else "operator", "QUInt8")


@pytest.mark.parametrize("form", ["qdq", "operator", "dynamic"])
def test_what_gains_nothing_stays_as_it_is(form: str, tmp_path: Path) -> None:
    model = quantized_in(form, residual(density=0.9), tmp_path)
    optimized = redpebble.optimize(model, target="ort")
    assert "ours" not in networks_of(model)
    before, after = (Counter(node.op_type for node in graph) for graph in (model.graph.node, optimized.model.graph))
    assert before == after


@needs_vnni
@pytest.mark.parametrize("form", ["qdq", "operator"])
def test_a_dense_convolution_in_between_still_computes_with_codes(form: Form, tmp_path: Path) -> None:
    net = Network()
    x = net.node("Relu", net.conv("x", (3, 128, 3)))
    for density in (0.05, 0.05, 1.0, 0.05, 0.05):
        x = net.node("Relu", net.conv(x, (128, 128, 3), density))
    model = quantized_images(net.model(x, 14), tmp_path, form, "QUInt8", per_channel=True)
    written, options = redpebble.optimize(model, target="ort").model, onnxruntime.SessionOptions()
    assert networks_of(model).count("ours") == 2
    options.optimized_model_filepath = str(tmp_path / "inside.onnx")
    options.register_custom_ops_library(redpebble.get_library_path())
    session = onnxruntime.InferenceSession(onnx_ir.to_proto(written).SerializeToString(), options)
    inside = [node.op_type for node in onnx.load_from_string((tmp_path / "inside.onnx").read_bytes()).graph.node]
    assert inside.count("QLinearConv") == 1
    assert "Conv" not in inside
    x = images(2, 14)
    assert np.array_equal(session.run(None, {"x": x})[0], outcome(model, x))


@needs_vnni
def test_results_of_codes_are_rounded_as_integers_are(tmp_path: Path) -> None:
    net = Network()
    model = quantized_images(net.model(net.conv("x", (3, 64, 7)), 24), tmp_path, "operator", "QUInt8")
    last = model.graph.node.pop()
    assert last.op_type == "DequantizeLinear"
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(last.input[0], TensorProto.UINT8, None))
    x = images(2, 24)
    assert np.array_equal(redpebble.session(model).run(None, {"x": x})[0], outcome(model, x))
    assert np.array_equal(redpebble.compile(model).run(None, {"x": x})[0], outcome(model, x))


def gated(activation: str, size: int = 20) -> onnx.ModelProto:
    """A stem, and blocks of depthwise convolutions with gates of activations and of means of their channels."""
    net = Network()
    x = net.node("Relu", net.conv("x", (3, 64, 3), 1.0))
    for stride in (1, 2):
        x = net.conv(x, (64, 64, 3))
        x = net.node("Mul", x, net.node(activation, x))
        x = net.conv(x, (64, 64, 3), 1.0, stride, 64)
        x = net.node("Mul", net.node(activation, x), x)
        gate = net.conv(net.node("GlobalAveragePool", x), (64, 64, 1), 0.2)
        x = net.conv(net.node("Mul", x, net.node("Sigmoid", gate)), (64, 64, 1))
    return net.model(x, size)


@needs_vnni
@pytest.mark.parametrize(
    ("activation", "form"),
    [
        ("HardSigmoid", "operator"),
        pytest.param("Sigmoid", "qdq", marks=pytest.mark.slow),
        pytest.param("Tanh", "qdq", marks=pytest.mark.slow),
    ],
)
def test_gates_of_codes_give_the_same_bytes(activation: str, form: Form, tmp_path: Path) -> None:
    model = quantized_images(gated(activation), tmp_path, form, "QUInt8", per_channel=True)
    x = images(3, 20)
    expected = outcome(model, x)
    assert len(np.unique(expected)) > 50
    # a power of e may be another float, whose code is next to that of onnxruntime
    assert share_of_a_step(redpebble.session(model).run(None, {"x": x})[0], expected) < 0.02
    assert share_of_a_step(redpebble.compile(model).run(None, {"x": x})[0], expected) < 0.02


@needs_vnni
@pytest.mark.parametrize("steps", [255, 90])
def test_a_clip_before_codes_gives_the_same_bytes(steps: int, tmp_path: Path) -> None:
    net = Network()
    x = net.node("Relu", net.conv("x", (3, 64, 3)))
    for _ in range(2):
        x = net.node("Relu", net.conv(x, (64, 64, 3)))
    model = quantized_images(net.model(x, 14), tmp_path, "qdq", "QUInt8", per_channel=True)
    arrays = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    for conv in [node for node in model.graph.node if node.op_type == "Conv"]:
        (after,) = (node for node in model.graph.node if conv.output[0] in node.input)
        assert after.op_type == "QuantizeLinear"
        assert arrays[after.input[2]] == 0
        ends = {"low": np.float32(0), "high": steps * arrays[after.input[1]]}
        names = [f"{name}_{conv.output[0]}" for name in ends]
        model.graph.initializer.extend(map(numpy_helper.from_array, map(np.asarray, ends.values()), names))
        clip = helper.make_node("Clip", [conv.output[0], *names], [f"clip_{conv.output[0]}"])
        model.graph.node.insert(list(model.graph.node).index(after), clip)
        after.input[0] = clip.output[0]
    assert networks_of(model).count("ours") == 1
    x = images(3, 14)
    # a clip that cuts more is computed in floats by onnxruntime
    most = 0 if steps == 255 else 0.02
    assert share_of_a_step(redpebble.session(model).run(None, {"x": x})[0], outcome(model, x)) <= most


CHANNELS, SIDE = 128, 20
"""Sizes of a convolution that gains by itself."""


def single(operator: str = "QLinearConv", **changed: NDArray[np.generic] | None) -> onnx.ModelProto:
    """One convolution of codes x that gains, with other parameters, or without those that are None."""
    rng = np.random.default_rng(3)
    weight = rng.integers(-127, 128, (CHANNELS, CHANNELS, 3, 3)) * (rng.random((CHANNELS, CHANNELS, 3, 3)) < 0.05)
    arrays: dict[str, NDArray[np.generic] | None] = {
        "xs": np.float32(0.02) * np.ones((), np.float32),
        "xz": np.array(120, np.uint8),
        "w": weight.astype(np.int8),
        "ws": np.full(CHANNELS, 0.01, np.float32),
        "wz": np.zeros(CHANNELS, np.int8),
        "ys": np.array(0.5, np.float32),
        "yz": np.array(100, np.uint8),
        "b": rng.integers(-99, 99, CHANNELS).astype(np.int32),
    }
    arrays |= changed
    names = [name if array is not None else "" for name, array in arrays.items()]
    if operator == "QLinearConv":
        nodes = [helper.make_node(operator, ["q", *names], ["r"], name="conv", pads=[1] * 4)]
        nodes.append(helper.make_node("DequantizeLinear", ["r", "ys", "yz"], ["y"], name="out"))
    else:
        nodes = [
            helper.make_node("ConvInteger", ["q", names[2], names[1], names[4]], ["s"], name="conv", pads=[1] * 4),
            helper.make_node("Add", ["s", "b"], ["a"], name="add"),
            helper.make_node("Cast", ["a"], ["f"], name="cast", to=TensorProto.FLOAT),
            helper.make_node("Mul", ["f", "ys"], ["y"], name="mul"),
        ]
    nodes = [helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"], name="in"), *nodes]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["batch", CHANNELS, SIDE, SIDE]), ("y", None))
    )
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items() if array is not None]
    graph = helper.make_graph(nodes, "single", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def of_channels(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return array.reshape(1, -1, 1, 1)


FEW = np.random.default_rng(4).random((CHANNELS, CHANNELS, 3, 3)) < 0.05
ODD = (np.arange(CHANNELS) % 2 == 1).reshape(-1, 1, 1, 1)

UNUSUAL: dict[str, onnx.ModelProto] = {
    "plain": single(),
    "no bias": single(b=None),
    "a scale of the weight": single(ws=np.array(0.01, np.float32), wz=np.array(0, np.int8)),
    "weights above 127": single(w=(255 * FEW).astype(np.uint8), wz=np.zeros(CHANNELS, np.uint8)),
    "a zero an output": single(w=(255 * (FEW ^ ODD)).astype(np.uint8), wz=(255 * ODD).astype(np.uint8).reshape(-1)),
    "saturated": single(ys=np.array(1e-3, np.float32)),
    "integers": single("ConvInteger", b=of_channels(np.arange(CHANNELS, dtype=np.int32)), wz=np.array(0, np.int8)),
    "integers scaled by channels": single(
        "ConvInteger",
        b=of_channels(np.arange(CHANNELS, dtype=np.int32)),
        ys=of_channels(np.linspace(0.1, 2, CHANNELS, dtype=np.float32)),
        wz=None,
    ),
    "integers along rows": single("ConvInteger", b=np.arange(SIDE, dtype=np.int32), wz=np.array(0, np.int8)),
    "zeros of another size": single(wz=np.zeros(3, np.int8)),
    "scales of another size": single(ws=np.full(3, 0.01, np.float32)),
    "a scale an input": single(xs=np.full(CHANNELS, 0.02, np.float32)),
    "a bias of another size": single(b=np.zeros(3, np.int32)),
    "no zero of the weight": single(wz=None),
    "no scale": single(xs=None),
    "a scale of 0": single(ws=np.zeros(CHANNELS, np.float32)),
    "a scale that is no number": single(ws=np.full(CHANNELS, np.nan, np.float32)),
    "an infinite scale": single(ys=np.array(np.inf, np.float32)),
    "a large bias": single(b=np.full(CHANNELS, 1 << 30, np.int32)),
    "a matrix": single(w=np.zeros((CHANNELS, CHANNELS), np.int8)),
    "too many channels": single(w=np.zeros((CHANNELS, CHANNELS + 1, 3, 3), np.int8)),
}


def compiled_or_refused(model: onnx.ModelProto, x: Floats) -> Floats | str:
    """Return what native code computes, or why there is none."""
    try:
        return redpebble.compile(model).run(None, {"x": x})[0]
    except redpebble.ModelError as error:
        return str(error)


@pytest.mark.slow
@needs_vnni
@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_parameters_compute_the_same_or_stay(name: str) -> None:
    model, x = UNUSUAL[name], np.random.default_rng(5).standard_normal((3, CHANNELS, SIDE, SIDE), dtype=np.float32)
    expected = ours = None
    with suppress(Exception):  # whatever onnxruntime says of it
        expected = outcome(model, x)
    with suppress(Exception):
        ours = redpebble.session(model).run(None, {"x": x})[0]
    assert (ours is None) == (expected is None)
    assert expected is None or (ours is not None and np.array_equal(ours, expected, equal_nan=True))
    found = compiled_or_refused(model, x)
    if isinstance(found, str):
        assert "\n" not in found
        return
    assert expected is None or np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("name", ["plain", "weights above 127", "a zero an output", "integers scaled by channels"])
def test_unusual_parameters_are_taken(name: str) -> None:
    assert "ours" in networks_of(UNUSUAL[name])


def test_what_a_convolution_reads_is_a_rounded_output_as_well(tmp_path: Path) -> None:
    net = ImageModel((1, 2, 7), density=0.0)
    net.tensors["factors"] = np.array([1, 1, 3, 1], np.float32)
    wide = net.node(
        "Resize", "x", "", "factors", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    model = quantized_images(
        net.model(wide, net.conv(wide, (1, 1, 5, 4), strides=[3, 3], pads=[4, 0, 3, 0])), tmp_path, "qdq", "QInt8"
    )
    assert redpebble.optimize(model, target="ort").networks
    feeds = {"x": 3 * np.random.default_rng(1).standard_normal((2, 1, 2, 7)).astype(np.float32)}
    judge = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, expected in zip(redpebble.session(model).run(None, feeds), judge.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, expected, atol=0.05 * float(np.abs(expected).max()))
