import re
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import redpebble
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.frontend.operators.on_images.resampling import PLACINGS
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.options import Options
from redpebble.pipeline import build
from redpebble.tools.headline import headline
from tests.ort.provider_models import plain_session
from tests.support.image_models import ImageModel, bottleneck, group_norm
from tests.support.sparse_network_models import network_nodes

Case = Callable[[], tuple[ImageModel, list[str]]]


def windows() -> tuple[ImageModel, list[str]]:
    """Windows of all kinds: odd sizes, strides, dilations, pads on one side, groups, larger than what is left."""
    net = ImageModel((6, 9, 11))
    a = net.conv("x", (8, 6, 1, 1))
    b = net.node("Sigmoid", net.conv(a, (8, 2, 3, 3), group=4, pads=[1, 1, 1, 1]))
    c = net.conv(b, (5, 8, 3, 5), dilations=[2, 1], pads=[2, 0, 1, 3], strides=[1, 2])
    d = net.conv(b, (8, 1, 3, 3), group=8, strides=[2, 2], auto_pad="SAME_UPPER")
    e = net.conv(b, (3, 8, 9, 1))
    return net, [c, d, e, net.conv(d, (16, 1, 2, 2), group=8)]


def planes() -> tuple[ImageModel, list[str]]:
    """What changes planes or joins them: pooling with pads, resizing, concat of what others read, split, sums."""
    net = ImageModel((4, 10, 7))
    a = net.conv("x", (8, 4, 3, 3), pads=[1, 1, 1, 1])
    pooled = net.node("MaxPool", a, kernel_shape=[5, 5], pads=[2, 2, 2, 2])
    both = net.node("Concat", a, pooled, net.node("Mul", a, net.node("Sigmoid", a)), a, axis=1)
    mean = net.node(
        "AveragePool", net.conv(both, (6, 32, 3, 3)), kernel_shape=[2, 2], strides=[2, 2], pads=[0, 1, 0, 0]
    )
    net.tensors["factors"] = np.array([1, 1, 2, 3], np.float32)
    ways = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return net, [net.node("Resize", mean, "", "factors", **ways), net.node("GlobalAveragePool", both)]


def channels() -> tuple[ImageModel, list[str]]:
    """What is spread over the pixels of each channel: squeeze and excite, batch norms, constants."""
    net = ImageModel((6, 9, 8))
    a = net.node("BatchNormalization", "x", *(net.channel_values(name, 6) for name in ("scale", "shift", "mean")), "v")
    net.tensors["v"] = np.abs(net.tensors["mean"]) + 1
    a = net.conv(net.node("Relu", a), (8, 6, 3, 3), pads=[1, 1, 1, 1])
    mean = net.node("GlobalAveragePool", a)
    squeezed = net.node("Relu", net.conv(mean, (3, 8, 1, 1)))
    gate = net.node("HardSigmoid", net.conv(squeezed, (8, 3, 1, 1)))
    b = net.node("Mul", net.node("Mul", gate, a), net.node("GlobalMaxPool", a))
    net.tensors["each"] = net.images(1)["x"][0, :1].reshape(-1)[:8].reshape(8, 1, 1)
    net.tensors["half"] = np.array(0.5, np.float32)
    b = net.node("Sub", "each", net.node("Mul", b, "half"))
    return net, [net.conv(b, (4, 8, 1, 1)), squeezed]


def places() -> tuple[ImageModel, list[str]]:
    """Pixels in other places: pads of all modes, resizing by factors and to sizes."""
    net = ImageModel((3, 7, 6))
    a = net.conv("x", (5, 3, 3, 3), pads=[1, 1, 1, 1])
    net.tensors |= {
        "pads": np.array([0, 0, 2, 1, 0, 0, 0, 3], np.int64),
        "cut": np.array([0, 0, -1, 0, 0, 0, 2, -2], np.int64),
        "fill": np.array(1.5, np.float32),
        "factors": np.array([1, 1, 2, 2], np.float32),
        "uneven": np.array([1, 1, 1.5, 0.7], np.float32),
        "sizes": np.array([1, 5, 11, 4], np.int64),
    }
    padded = [net.node("Pad", a, "pads", *fill, mode=mode) for mode, *fill in (("constant", "fill"), ("edge",))]
    reflected = net.node("Pad", a, "cut", mode="constant")
    results = [net.node("Pad", a, "pads", mode="reflect")]
    for way in ("half_pixel", "align_corners", "asymmetric"):
        factors = "factors" if way == "half_pixel" else "uneven"
        mode = {"mode": "linear", "coordinate_transformation_mode": way}
        results.append(net.node("Resize", padded[0], "", factors, **mode))
        results.append(net.node("Resize", padded[1], "", "uneven", coordinate_transformation_mode=way))
    return net, [*results, net.conv(reflected, (2, 5, 2, 2))]


def rows() -> tuple[ImageModel, list[str]]:
    """Images of one row: signals [N, C, W]."""
    net = ImageModel((5, 37))
    a = net.node("Relu", net.conv("x", (8, 5, 5), pads=[2, 2]))
    b = net.conv(a, (8, 1, 3), group=8, pads=[2, 2], dilations=[2])
    pooled = net.node("MaxPool", net.node("Add", a, b), kernel_shape=[3], strides=[2], ceil_mode=1)
    net.tensors["pads"] = np.array([0, 0, 1, 0, 0, 2], np.int64)
    net.tensors["factors"] = np.array([1, 1, 2], np.float32)
    c = net.conv(net.node("Pad", pooled, "pads", mode="edge"), (4, 8, 4), strides=[2])
    larger = net.node("Resize", c, "", "factors", mode="linear")
    means = net.node("AveragePool", c, kernel_shape=[90], strides=[90], ceil_mode=1, count_include_pad=1)
    return net, [larger, means, net.node("GlobalAveragePool", net.node("Mul", c, net.node("GlobalAveragePool", c)))]


def cubic() -> tuple[ImageModel, list[str]]:
    """Resizing by four pixels along each axis, for each way to place the pixels."""
    net, results = ImageModel((3, 7, 6)), list[str]()
    a = net.conv("x", (5, 3, 3, 3), pads=[1, 1, 1, 1])
    net.tensors |= {"factors": np.array([1, 1, 2, 2], np.float32), "uneven": np.array([1, 1, 1.7, 0.6], np.float32)}
    for index, way in enumerate(PLACINGS):
        words = {"mode": "cubic", "coordinate_transformation_mode": way}
        factors, numbers = "factors" if index == 0 else "uneven", {"exclude_outside": index % 2}
        results.append(net.node("Resize", a, "", factors, **words, **numbers, cubic_coeff_a=-0.5 - index / 8))
    return net, [net.conv(results[0], (2, 5, 2, 2)), *results[1:]]


def norms() -> tuple[ImageModel, list[str]]:
    """Norms of each channel and of groups of channels, as torch writes them: by Reshape, with its scale behind it."""
    net = ImageModel((3, 5, 7))
    a = net.conv("x", (8, 3, 3, 3), pads=[1, 1, 1, 1])
    scale, shift = net.channel_values("scale", 8), net.channel_values("shift", 8)
    results = [net.node("InstanceNormalization", a, scale, shift, epsilon=1e-3)]
    results += [group_norm(net, results[-1], 8, groups, size=280 // groups) for groups in (1, 4, 8)]
    summed = net.node("Relu", net.node("Add", results[1], results[2]))
    return net, [net.conv(summed, (4, 8, 3, 3)), results[-1], net.node("GlobalAveragePool", results[0])]


def many_taps() -> tuple[ImageModel, list[str]]:
    """Windows of many taps that share pixels or reach over the end, as first layers over sound have them."""
    net = ImageModel((2, 40, 13))
    a = net.conv("x", (3, 2, 12, 12), strides=[12, 11], pads=[0, 0, 12, 10])
    b = net.conv("x", (4, 2, 36, 3), strides=[3, 1], pads=[7, 1, 9, 0])
    c = net.conv(net.node("Relu", b), (5, 4, 7, 9), dilations=[2, 1], pads=[6, 4, 6, 4])
    return net, [a, c, net.conv("x", (4, 1, 25, 4), strides=[2, 2], group=2)]


def distances() -> tuple[ImageModel, list[str]]:
    """Windows whose taps lie far apart, as DeepLab has them: some reach pads alone, some lie in rows of their own."""
    net = ImageModel((5, 9, 10))
    a = net.node("Relu", net.conv("x", (8, 5, 3, 3), pads=[1, 1, 1, 1]))
    parts = [net.conv(a, (4, 8, 3, 3), dilations=[far, far], pads=[far] * 4) for far in (4, 8, 12)]
    parts.append(net.conv(a, (8, 1, 3, 3), group=8, dilations=[6, 7], pads=[6, 7, 6, 7]))
    cut = net.conv(a, (3, 8, 4, 3), strides=[2, 3], dilations=[9, 5], pads=[11, 9, 17, 7])
    return net, [net.conv(net.node("Concat", *parts, axis=1), (6, 20, 1, 1)), cut]


CASES = (windows, planes, channels, places, cubic, norms, many_taps, rows, distances)


def agree(model: onnx.ModelProto, net: ImageModel, target: CpuTarget | None, threads: int = 1) -> None:
    compiled = redpebble.compile(model, target=target, threads=threads)
    for batch in (0, 1, 2, 7):
        feeds = net.images(batch)
        results = compiled.run(None, feeds)
        expected = plain_session(model, 1).run(None, feeds)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5 * max(1, np.abs(wanted).max(initial=0)))


@pytest.mark.parametrize("case", CASES)
def test_layers_on_images_agree_with_onnxruntime(case: Case) -> None:
    net, outputs = case()
    agree(net.model(*outputs), net, CpuTarget.generic())


@pytest.mark.slow
@pytest.mark.parametrize("target", [None, CpuTarget.avx2()])
@pytest.mark.parametrize("case", [*CASES, lambda: bottleneck(32, 14)])
def test_layers_on_images_agree_on_other_targets(case: Case, target: CpuTarget | None) -> None:
    net, outputs = case()
    agree(net.model(*outputs), net, target, threads=2)


@pytest.mark.parametrize("case", CASES)
def test_the_meaning_of_layers_on_images_is_that_of_onnx(case: Case) -> None:
    net, outputs = case()
    model, feeds = net.model(*outputs), net.images(2)
    module = build(model, Options(), until="choose")
    results = interpret(module, {"x": feeds["x"].astype(np.float64)})
    for result, wanted in zip(results, plain_session(model, 1).run(None, feeds), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_the_body_of_a_network_is_one_node_of_onnxruntime_and_its_stem_stays() -> None:
    net, outputs = bottleneck(128, 14, density=0.1)
    model = net.model(*outputs)
    optimized = redpebble.optimize(model)
    written = onnx_ir.to_proto(optimized.model)
    assert len(network_nodes(written)) == 1
    assert written.ByteSize() < 0.2 * model.ByteSize()
    stayed = [node.op_type for node in written.graph.node if node.domain == ""]
    assert stayed[:3] == ["Conv", "Relu", "Flatten"]
    assert stayed[3:] in (["Gemm"], ["MatMul"])
    assert optimized.networks[0].reason.startswith("7 of 7 weights sparse")
    assert optimized.gain is not None
    assert 1 < optimized.gain.ratio < 7
    assert "x predicted in a session at 1\N{NO-BREAK SPACE}image, at most " in headline(optimized)[0]
    # the first one of ours has the function of standard operators
    plain, *ours = plain_session(model, 1), plain_session(written, 1), redpebble.session(optimized.model)
    for batch in (1, 7):
        feeds = net.images(batch)
        (expected,) = plain.run(None, feeds)
        for session in ours:
            np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-5)


def test_a_dense_convolution_amid_sparse_ones_does_not_cut_the_network() -> None:
    net, channels = ImageModel((3, 14, 14), density=1.0), 96
    x = net.conv("x", (channels, 3, 3, 3), pads=[1, 1, 1, 1])
    for density in (0.1, 1.0, 0.1):
        net.density = density
        x = net.node("Relu", net.conv(x, (channels, channels, 1 if density == 1 else 3, 1), pads=[0, 0, 0, 0]))
    model = net.model(x)
    optimized = redpebble.optimize(model)
    assert [network.layers for network in optimized.networks] == [3]
    assert optimized.networks[0].reason.startswith("2 of 3 weights sparse")
    agree(model, net, None)


def test_a_network_without_zeros_stays_as_it_is() -> None:
    net, outputs = bottleneck(32, 6, density=1.0)
    optimized = redpebble.optimize(net.model(*outputs))
    assert not optimized.networks
    assert sum(node.op_type == "Conv" for node in optimized.model.graph) == 8
    assert optimized.obstacle == "all layers are dense, with 0 % zeros at most; redpebble prune makes more"


def test_a_network_that_gains_too_little_is_left_alone_with_the_reason() -> None:
    net, outputs = bottleneck(32, 6, density=0.4)
    optimized = redpebble.optimize(net.model(*outputs))
    assert not optimized.networks
    assert re.fullmatch(r"convolutions would be 1\.[01]\dx as fast, taken are 1\.15x", optimized.obstacle)
    assert optimized.left is not None
    assert optimized.obstacle in optimized.left.reasons.values()


sizes = st.integers(1, 20)


@st.composite
def random_windows(draw: st.DrawFn) -> tuple[ImageModel, list[str]]:
    net = ImageModel((draw(st.integers(1, 9)), draw(sizes), draw(sizes)), seed=draw(st.integers(0, 99)))
    taps = [draw(st.integers(1, min(5, size))) for size in net.shape[1:]]
    attributes = {
        "strides": [draw(st.integers(1, 3)) for _ in taps],
        "pads": [draw(st.integers(0, tap - 1)) for tap in (*taps, *taps)],
    }
    far = {**attributes}
    if draw(st.booleans()):
        far["dilations"] = [draw(st.integers(1, 12)) for _ in taps]
        reaches = [apart * (tap - 1) for apart, tap in zip(far["dilations"], taps, strict=True)]
        far["pads"] = [reach + draw(st.integers(0, 3)) for reach in (*reaches, *reaches)]
    first = net.conv("x", (draw(st.integers(1, 9)), net.shape[0], 1, 1))
    outputs = net.tensors["b0"].shape[0]
    kind = draw(st.sampled_from(["Conv", "depthwise", "MaxPool", "AveragePool"]))
    match kind:
        case "Conv":
            result = net.conv(first, (draw(st.integers(1, 9)), outputs, taps[0], taps[1]), **far)
        case "depthwise":
            result = net.conv(first, (outputs, 1, taps[0], taps[1]), group=outputs, **far)
        case _:
            result = net.node(kind, first, kernel_shape=taps, **attributes)
    return net, [result, net.node("Relu", first)]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_windows())
def test_random_windows_agree_with_onnxruntime(case: tuple[ImageModel, list[str]]) -> None:
    net, outputs = case
    agree(net.model(*outputs), net, None)


def test_convolutions_without_a_name_are_taken_as_those_with_one() -> None:
    net, outputs = bottleneck(128, 14, density=0.1)
    model = net.model(*outputs)
    named = onnx_ir.to_proto(redpebble.optimize(model).model)
    for node in model.graph.node:
        node.name = ""
    written = onnx_ir.to_proto(redpebble.optimize(model).model)
    assert len(network_nodes(written)) == 1
    assert [node.op_type for node in written.graph.node] == [node.op_type for node in named.graph.node]
    assert not any(node.name for node in written.graph.node)
