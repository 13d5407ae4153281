"""Convolutions are pruned like layers over the windows of their images."""

from collections.abc import Sequence
from math import ceil

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.kernels.machine import Machine
from redpebble.pruning.budgets import densities_of
from redpebble.pruning.layer_prices import LayerPrices
from redpebble.pruning.layers import PrunableLayer, prunable_layers
from redpebble.pruning.options import Goal, PruneOptions
from redpebble.pruning.prune import prune
from redpebble.pruning.runs.call_sizes import CallSizes
from redpebble.pruning.runs.segments import SegmentedModel
from redpebble.pruning.solving.structures import structure_of
from redpebble.pruning.source_model import SourceModel
from redpebble.verification.oracle import Oracle
from tests.pruning.dense_networks import weight_of

Array = NDArray[np.float32]

WINDOWS = {
    "plain": ("", (3, 3), (9, 8)),
    "strides, dilations, pads": ("strides = [2, 1], dilations = [1, 2], pads = [1, 0, 2, 1]", (3, 2), (9, 8)),
    "same, upper": ('auto_pad = "SAME_UPPER", strides = [2, 3]', (3, 4), (9, 8)),
    "same, lower": ('auto_pad = "SAME_LOWER", strides = [2, 1]', (2, 4), (9, 8)),
    "valid": ('auto_pad = "VALID"', (2, 1), (8, 8)),
    "one axis": ("pads = [2, 1], strides = [2]", (5,), (17,)),
    "three axes": ("pads = [1, 0, 0, 0, 1, 0]", (2, 2, 2), (4, 3, 3)),
}


def convolution(attributes: str, kernel: tuple[int, ...], sizes: tuple[int, ...]) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    shape = ", ".join(map(str, sizes))
    places = ", ".join("abc"[: len(sizes)])
    given = f"<{attributes}>" if attributes else ""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        one (float[n, 24, {shape}] x) => (float[n, 256, {places}] y) {{ y = Conv{given}(x, w) }}"""
    model = onnx.parser.parse_model(text)
    weight = rng.standard_normal((256, 24, *kernel)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


@pytest.mark.parametrize("name", WINDOWS)
def test_rows_times_weights_are_what_a_convolution_computes(name: str) -> None:
    attributes, kernel, sizes = WINDOWS[name]
    model = convolution(attributes, kernel, sizes)
    (layer,) = prunable_layers(model.graph)
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
    x = np.random.default_rng(1).standard_normal((2, 24, *sizes)).astype(np.float32)
    (expected,) = Oracle(ir.from_proto(model)).run({"x": x})
    (rows,) = layer.rows(x, 2)
    assert layer.window is not None
    assert layer.window.places(sizes) == expected.shape[2:]
    found = rows @ layer.matrix(weight)
    np.testing.assert_allclose(found, np.moveaxis(expected, 1, -1).reshape(-1, 256), rtol=1e-4, atol=1e-4)
    assert np.array_equal(layer.stored(layer.matrix(weight)), weight)


@pytest.mark.parametrize(("samples", "of_each"), [(3, 38 * 38), (32, 24 * 9), (1000, 24 * 9 * 32 / 1000), (10**6, 4)])
def test_many_or_large_images_give_some_of_their_windows(samples: int, of_each: float) -> None:
    (layer,) = prunable_layers(convolution("", (3, 3), (40, 40)).graph)
    x = np.random.default_rng(1).standard_normal((3, 24, 40, 40)).astype(np.float32)
    (rows,), (again,) = layer.rows(x, samples), layer.rows(x, samples)
    assert rows.shape == (3 * ceil(of_each), 24 * 9)
    assert np.array_equal(rows, again)


def network() -> ir.Model:
    """Return images [n, 8, 12, 12] -> convolutions with a strided, a grouped and a residual one -> 10 numbers."""
    rng = np.random.default_rng(0)
    text = """<ir_version: 8, opset_import: ["" : 17]> images (float[n, 8, 12, 12] x) => (float[n, 10] y) {
        a = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)  b = Relu(a)
        c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(b, w2)  d = Relu(c)
        e = Conv<pads = [1, 1, 1, 1], group = 64>(d, w3)
        f = Conv<pads = [1, 1, 1, 1]>(e, w4)  g = Add(d, f)  h = Relu(g)
        i = GlobalAveragePool(h)  j = Flatten(i)  y = Gemm<transB = 1>(j, w5, b5)
    }"""
    model = onnx.parser.parse_model(text)
    shapes = {"w1": (64, 8, 3, 3), "w2": (64, 64, 3, 3), "w3": (64, 1, 3, 3), "w4": (64, 64, 3, 3), "w5": (10, 64)}
    for name, (outputs, *inputs) in shapes.items():
        weight = weight_of(int(np.prod(inputs)), outputs, rng).T.reshape(outputs, *inputs).copy()
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    for name, size in (("b1", 64), ("b5", 10)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(size, 0.1, np.float32), name))
    return ir.from_proto(model)


def images(count: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(2).standard_normal((count, 8, 12, 12)).cumsum(axis=2).astype(np.float32)}


def test_a_network_of_convolutions_is_pruned_and_runs_natively() -> None:
    model, data = network(), images(40)
    result = prune(model, data, sparsity=0.8, rows=2)
    assert [(layer.inputs, layer.outputs) for layer in result.report.layers] == [(72, 64), (576, 64), (576, 64)]
    for name in ("w1", "w2", "w4"):
        tensor = result.model.graph.initializers[name].const_value
        assert tensor is not None
        counts = np.count_nonzero(tensor.numpy().reshape(64, -1), axis=1)
        assert set(counts) == {round(0.2 * tensor.size / 64)}
    assert result.report.loss < prune(model, data, sparsity=0.8, rows=2, method="magnitude").report.loss
    (expected,) = Oracle(result.model).run(data)
    (found,) = redpebble.session(result.model).run(None, data)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_block_and_its_shortcut_read_one_value_through_windows_of_their_own() -> None:
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    block (float[n, 64, 6, 6] x) => (float[n, 80, 3, 3] y) {
        a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w1)  b = Conv<strides = [2, 2]>(x, w2)  y = Add(a, b)
    }""")
    for name, kernel in (("w1", 3), ("w2", 1)):
        weight = weight_of(64 * kernel * kernel, 80, rng).T.reshape(80, 64, kernel, kernel).copy()
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    data = {"x": rng.standard_normal((64, 64, 6, 6)).cumsum(axis=2).astype(np.float32)}
    report = prune(ir.from_proto(model), data, loss=0.1, rows=1).report
    assert [layer.inputs for layer in report.layers] == [576, 64]
    assert report.loss <= 0.1


def test_convolutions_are_priced_by_pixels() -> None:
    source = SourceModel.read(network(), [])
    segmented = SegmentedModel.of(source.proto, source.layers, 1)
    calls = [CallSizes.of(segmented, images(count), source.dense) for count in (1, 5)]
    assert [(call.rows, call.samples) for call in calls] == [(1, 1), (5, 5)]
    assert [one.places for one in calls[0].images.values()] == [(12, 12), (6, 6), (6, 6)]
    prices = [LayerPrices(source.layers, PruneOptions(Goal("sparsity", 0.5)), call, Machine()) for call in calls]

    def times(one: LayerPrices, layer: PrunableLayer) -> list[float]:
        return [one.dense_us(layer), *(one.sparse_us(layer, density) or np.inf for density in (0.1, 0.3))]

    for layer in source.layers:
        one, five = (times(price, layer) for price in prices)
        assert five == pytest.approx([5 * time for time in one])
        assert one[1] < min(one[0], one[2])
        assert densities_of(layer, structure_of("equal"), prices[0])


def test_a_convolution_over_one_place_takes_as_long_as_a_layer_of_as_many_weights() -> None:
    """Reading the weights takes longer than multiplying by them; sparse ones are read faster."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    small (float[n, 512, 3, 3] x, float[n, 4608] z) => (float[n, 512, 1, 1] y, float[n, 512] u) {
        y = Conv(x, w)  u = MatMul(z, v)
    }""")
    prices, (convolution, layer) = _priced(model, w=(512, 512, 3, 3), v=(4608, 512))
    assert prices.dense_us(layer) / 2 < prices.dense_us(convolution) < 2 * prices.dense_us(layer)
    assert (prices.sparse_us(convolution, 0.1) or np.inf) < prices.dense_us(convolution) / 2


def test_taps_that_read_pads_alone_take_no_time() -> None:
    """Neither here nor there: onnxruntime's kernels skip them."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    small (float[n, 512, 1, 1] x) => (float[n, 512, 1, 1] y, float[n, 512, 1, 1] u) {
        y = Conv<pads = [1, 1, 1, 1]>(x, w)  u = Conv(x, v)
    }""")
    prices, (padded, alone) = _priced(model, w=(512, 512, 3, 3), v=(512, 512, 1, 1))
    assert prices.dense_us(padded) == pytest.approx(prices.dense_us(alone))
    ours, theirs = (prices.predicted_us(layer, 0.1) for layer in (padded, alone))
    # windows are copied, which those of one value are not
    assert ours == pytest.approx(theirs, rel=0.2)


def _priced(model: onnx.ModelProto, **shapes: tuple[int, ...]) -> tuple[LayerPrices, Sequence[PrunableLayer]]:
    """The prices of layers of a model with random weights of some shapes, for one sample."""
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        weight = rng.standard_normal(shape, dtype=np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    sizes = {one.name: [dim.dim_value or 1 for dim in one.type.tensor_type.shape.dim] for one in model.graph.input}
    feeds = {name: np.ones(size, np.float32) for name, size in sizes.items()}
    source = SourceModel.read(ir.from_proto(model), [])
    call = CallSizes.of(SegmentedModel.of(source.proto, source.layers, 1), feeds, source.dense)
    return LayerPrices(source.layers, PruneOptions(Goal("sparsity", 0.5)), call, Machine()), source.layers


def test_a_network_of_images_and_tokens_has_both_at_the_sizes_of_the_data() -> None:
    """Rows are images, and what is measured is no image that is cut until it has so few tokens."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    reader (float[n, 8, 4, w] x) => (float[n, w, 64] y) {
        a = Conv<strides = [4, 1]>(x, w1)  flat = Constant<value_ints = [0, 64, -1]>()  b = Reshape(a, flat)
        c = Transpose<perm = [0, 2, 1]>(b)  y = MatMul(c, w2)
    }""")
    for name, shape in (("w1", (64, 8, 4, 4)), ("w2", (64, 80))):
        weight = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    data = {"x": rng.standard_normal((20, 8, 4, 23)).astype(np.float32)}
    for rows, images in ((None, 1), (1, 1), (3, 3)):
        report = prune(ir.from_proto(model), data, sparsity=0.5, rows=rows, method="magnitude").report
        assert report.inputs == f"x {images}x8x4x23"
        assert report.rows == images * 20


@pytest.mark.slow
def test_convolutions_with_many_channels_become_faster() -> None:
    rng = np.random.default_rng(0)
    text = """<ir_version: 8, opset_import: ["" : 17]> deep (float[n, 128, 28, 28] x) => (float[n, 128, 28, 28] y) {
        a = Conv<pads = [1, 1, 1, 1]>(x, w1)  b = Relu(a)  c = Conv(b, w2)  d = Relu(c)
        e = Conv<pads = [1, 1, 1, 1]>(d, w3)  y = Relu(e)
    }"""
    model = onnx.parser.parse_model(text)
    for name, kernel in (("w1", (3, 3)), ("w2", (1, 1)), ("w3", (3, 3))):
        weight = weight_of(128 * kernel[0] * kernel[1], 128, rng).T.reshape(128, 128, *kernel).copy()
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    data = {"x": rng.standard_normal((24, 128, 28, 28)).cumsum(axis=2).astype(np.float32)}
    result = prune(model, data, sparsity=0.9, rows=1)
    assert result.report.measured.speedup > 1.3
    (expected,) = Oracle(result.model).run(data)
    (found,) = redpebble.session(result.model).run(None, data)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
