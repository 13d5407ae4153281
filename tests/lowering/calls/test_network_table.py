from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, helper

import redpebble
from redpebble.lowering.calls.network_table import IN_ONNXRUNTIME, network_table, symbols_of
from redpebble.runtime.network import Network


@cache
def joined() -> Network:
    """x [n, p, 4] and y [n, s, 4], one behind the other along the second axis, through a Relu and once more."""
    nodes = [
        helper.make_node("Concat", ["x", "y"], ["both"], axis=1),
        helper.make_node("Relu", ["both"], ["positive"]),
        helper.make_node("Concat", ["positive", "x"], ["z"], axis=1),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size, 4]) for name, size in ("xp", "ys")]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return redpebble.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), cache=False)


def test_values_of_unknown_lengths_are_joined() -> None:
    network, rng = joined(), np.random.default_rng(0)
    assert [output.shape for output in network.get_outputs()] == [["n", "(2*p + s)", 4]]
    for past, own in ((2, 3), (0, 1), (5, 0), (0, 0)):
        x, y = (rng.standard_normal((2, length, 4)).astype(np.float32) for length in (past, own))
        (result,) = network.run(None, {"x": x, "y": y})
        np.testing.assert_array_equal(result, np.concatenate([np.maximum(np.concatenate([x, y], 1), 0), x], 1))


def test_a_host_that_adds_no_sizes_refuses_sums() -> None:
    program = joined().program
    with pytest.raises(ValueError, match=r"expected products of the inputs' sizes, got the sum \(p \+ s\)"):
        network_table(program, symbols_of(program, "n"), IN_ONNXRUNTIME)
