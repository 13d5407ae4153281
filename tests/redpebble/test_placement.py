"""Where the work of a model lies after `optimize`, and why it is not elsewhere."""

from math import inf

import numpy as np
import onnx
import onnx.parser

import redpebble
from redpebble.models.pruned_weights import random_weight

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
    assert "neither operand is a float constant, accepted is a constant weight" in reasons
    assert "no sparse kernel is predicted to be faster for every batch" in reasons


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
