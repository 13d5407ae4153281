"""Where the work of a model lies after `optimize`, and why it is not elsewhere."""

from math import inf

import numpy as np
import onnx
import onnx.parser
import pytest

import redpebble
from redpebble.frontend.reading.model_source import read_model
from redpebble.frontend.sparse_weights import weight_zeros
from redpebble.models.pruned_weights import random_weight
from tests.support.image_models import ImageModel

WIDTH = 256


def two_layers(second: float) -> onnx.ModelProto:
    """A sparse layer, a product of activations, and a layer of another density."""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n,{WIDTH}] x, float[{WIDTH},{WIDTH}] z) => (float[n,{WIDTH}] y) {{
            [first] h = MatMul(x, w)
            [middle] p = MatMul(h, z)
            [second] y = MatMul(p, v)
        }}
    """)
    rng = np.random.default_rng(0)
    for name, density in (("w", 0.1), ("v", second)):
        weight = random_weight(WIDTH, WIDTH, density, rng)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return proto


def test_each_node_that_stays_has_its_work_and_a_reason() -> None:
    placement = redpebble.optimize(two_layers(1.0), target="ort").placement
    assert placement is not None
    one = WIDTH * WIDTH
    assert (placement.multiply_adds, placement.taken) == (3 * one, one)
    assert (placement.linear, placement.linear_taken) == (2 * one, one)
    assert placement.share == 1 / 3
    assert placement.linear_share == 1 / 2
    assert placement.bound == 1.5
    reasons = {line.reason for line in placement.stayed}
    assert [(line.operator, line.nodes, line.multiply_adds) for line in placement.stayed] == [("MatMul", 1, one)] * 2
    assert "expected a constant weight, got two computed operands" in reasons
    assert "dense: 0 % zeros; redpebble prune makes more" in reasons


def test_a_line_says_which_layers_were_taken_and_why_others_stay() -> None:
    net = ImageModel((64, 14, 14), density=0.05)
    x = net.node("Relu", net.conv("x", (64, 64, 3, 3), pads=[1, 1, 1, 1]))
    x = net.node("Relu", net.conv(x, (64, 64, 3, 3), pads=[1, 1, 1, 1]))
    net.density = 1.0
    rows = net.node("Flatten", net.node("GlobalAveragePool", net.node("LRN", x, size=3)))
    placement = redpebble.optimize(net.model(net.node("MatMul", rows, net.weights("w", (64, 40))))).placement
    assert str(placement) == (
        "2 of 2 convolutions and 0 of 1 other layers, 100 % of the multiply-adds; "
        "left: 1 MatMul: dense: 0 % zeros; redpebble prune makes more"
    )


def one_layer(zeros: float, width: int = 64) -> onnx.ModelProto:
    """A layer that has no name, with a bias and an activation behind it."""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n,{width}] x) => (float[n,{width}] y) {{
            h = MatMul(x, w)
            s = Add(h, b)
            y = Relu(s)
        }}
    """)
    weight = np.ones((width, width), dtype=np.float32)
    weight[np.indices(weight.shape).sum(axis=0) % width < zeros * width] = 0
    for name, array in (("w", weight), ("b", np.ones(width, dtype=np.float32))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


@pytest.mark.parametrize("zeros", [0.25, 0.375])
def test_layers_with_hardly_any_zeros_are_called_dense_and_the_remedy_is_named(zeros: float) -> None:
    result = redpebble.optimize(one_layer(zeros))
    assert result.placement is not None
    (line,) = result.placement.stayed
    assert (line.operator, line.multiply_adds, line.zeros) == ("MatMul", 64 * 64, zeros)
    assert line.reason == f"dense: {100 * zeros:.0f} % zeros; redpebble prune makes more"
    assert result.obstacle.startswith(f"all layers are dense, with {100 * zeros:.0f} % zeros at most")


def test_layers_with_many_zeros_are_not_called_dense() -> None:
    result = redpebble.optimize(one_layer(0.4375))
    assert result.placement is not None
    assert all(line.zeros is None for line in result.placement.stayed)
    assert "dense" not in result.obstacle


def test_dense_convolutions_are_called_dense() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n,8,16,16] x) => (float[n,8,16,16] y) { y = Conv<pads = [1, 1, 1, 1]>(x, w) }
    """)
    weight = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    result = redpebble.optimize(proto)
    assert result.placement is not None
    assert [line.zeros for line in result.placement.stayed] == [0.0]
    assert result.obstacle == "all layers are dense, with 0 % zeros at most; redpebble prune makes more"


def test_codes_are_zeros_where_they_are_the_zero_point() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (uint8[n,4] x) => (int32[n,4] y)
        <uint8[4, 4] w = {7,1,1,1, 7,1,1,1, 7,1,1,1, 7,1,1,1}, uint8 a = {0}, uint8 z = {7}> {
            y = MatMulInteger(x, w, a, z)
        }
    """)
    (node,) = read_model(proto).graph
    assert weight_zeros(node, 10) == 0.25


def test_a_model_that_is_taken_as_a_whole_has_no_bound() -> None:
    proto = two_layers(0.1)
    del proto.graph.node[1]
    proto.graph.node[1].input[0] = "h"
    placement = redpebble.optimize(proto, target="ort").placement
    assert placement is not None
    assert placement.share == placement.linear_share == 1.0
    assert placement.bound == inf
    assert placement.stayed == ()


def test_the_place_of_work_is_counted_when_it_is_asked_for() -> None:
    result = redpebble.optimize(two_layers(0.1))
    assert "placement" not in vars(result)
    assert result.placement is result.placement is not None


def test_work_that_cannot_be_counted_is_not_taken_for_work_that_was_taken() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[n,64] x) => (float[n,64] y) {
            y = com.microsoft.MoE <k: int = 1> (x, router, up, , down)
        }
    """)
    shapes = {"up": (4, 64, 128), "down": (4, 128, 64)}
    proto.graph.input.append(onnx.helper.make_tensor_value_info("router", onnx.TensorProto.FLOAT, ["n", 4]))
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in shapes.items()
    )
    result = redpebble.optimize(proto)
    placement = result.placement
    assert placement is not None
    assert (placement.multiply_adds, placement.uncounted, placement.share, placement.linear_share) == (0, 1, 0.0, 0.0)
    assert "that could be counted (1 nodes could not)" in str(placement)
