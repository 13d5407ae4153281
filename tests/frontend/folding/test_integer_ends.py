"""Ends of floats that layers of bytes get: where their results are rounded, and only where the weight is one."""

import numpy as np
import onnx_ir
import pytest
from onnx import numpy_helper, parser

from redpebble.frontend.folding.integer_ends import MOST_BEFORE_ROUNDING, give_float_ends
from redpebble.kernels.machine import ANY_MACHINE, Machine

TEXT = """
<ir_version: 9, opset_import: ["" : 17]>
layer (float[n, 8] x) => (uint8[n, 8] y) <float s = {0.05}, uint8 z = {128}> {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  u = DequantizeLinear<axis = 1>(w, ws, wz)
  v0 = MatMul(d, u)
  STEPS
  y = QuantizeLinear(LAST, s, z)
}
"""


def layer(steps: int, zeros: int = 8) -> onnx_ir.Model:
    """A layer, so many activations behind it, and codes as results; its weight has so many zero points."""
    chain = "\n".join(f"v{index + 1} = Relu(v{index})" for index in range(steps))
    proto = parser.parse_model(TEXT.replace("STEPS", chain).replace("LAST", f"v{steps}"))
    arrays = {
        "w": np.eye(8, dtype=np.int8),
        "ws": np.full(8, 0.1, np.float32),
        "wz": np.zeros(zeros, np.int8),
    }
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return onnx_ir.from_proto(proto)


@pytest.mark.parametrize("steps", [0, 3, 5])
def test_codes_behind_a_layer_and_its_activations_get_an_end_of_floats(steps: int) -> None:
    model = layer(steps)
    assert give_float_ends(model, None)
    assert [node.op_type for node in model.graph][-3:] == ["QuantizeLinear", "DequantizeLinear", "QuantizeLinear"]
    assert model.graph.outputs[0].name == "y"


def test_codes_far_behind_a_layer_are_not_its_own() -> None:
    assert MOST_BEFORE_ROUNDING == 6
    assert not give_float_ends(layer(6), None)


@pytest.mark.parametrize("machine", [None, ANY_MACHINE])
def test_a_weight_with_zero_points_of_another_size_is_none_of_a_layer(machine: Machine | None) -> None:
    model = layer(0, zeros=3)
    assert not give_float_ends(model, machine)
    assert [node.op_type for node in model.graph].count("QuantizeLinear") == 2
