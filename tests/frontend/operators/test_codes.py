"""Where a quantized network is refused, the message names what does not read its codes, not what makes them."""

import onnx
import pytest
from onnx import parser

import redpebble
from redpebble import UnsupportedModelError
from redpebble.frontend.operators.quantized import YIELDS_CODES

HEAD = """
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
quantized (float[b, 2] x) => ({result} y)
<float s = {{0.02}}, float t = {{0.03}}, uint8 z = {{128}}, int8[2, 2] w = {{1, 0, 0, 2}}, int8 o = {{0}},
 int64[2] both = {{1, 0}}, int32 k = {{100}}, uint16 z16 = {{300}}, float[2] two = {{0.02, 0.03}},
 uint8[2] zeros = {{128, 128}}>
"""
LAYER = "[quant] q = QuantizeLinear(x, s, z)  [mm] a = QLinearMatMul(q, s, z, w, t, o, s, z)"
FLOATS = "[out] y = DequantizeLinear(c, s, z)"
READ_AS_FLOATS = "expected tensor\\(float\\) of known rank as input"


def model_of(nodes: str, result: str = "float[b, 2]") -> onnx.ModelProto:
    return parser.parse_model(f"{HEAD.format(result=result)} {{ {nodes} }}")


@pytest.mark.parametrize(
    "nodes, message",
    [
        (f"{LAYER} [add] c = com.microsoft.QLinearAdd(a, s, z, q, s, z, s, z) {FLOATS}", "'add': .* no native"),
        (f"{LAYER} [cast] y = Cast <to = 1> (a)", f"'cast': operator Cast .* {READ_AS_FLOATS} a, got quantized values"),
        (
            "[quant] q = QuantizeLinear(x, s, z)  [turn] g = Gather <axis = 1> (q, both)"
            f" c = QLinearMatMul(g, s, z, w, t, o, s, z) {FLOATS}",
            f"'turn': operator Gather .* {READ_AS_FLOATS} q, got quantized values",
        ),
        (
            f"{LAYER} [other] y = DequantizeLinear(a, t, z)",
            "'other': .* dequantized by the scale and zero it is quantized by",
        ),
        (
            "q = QuantizeLinear(x, s, z16)  [wide] y = DequantizeLinear(q, s, z16)",
            "'wide': .* expected an input of uint8 or int8, got uint16",
        ),
        (
            "q = QuantizeLinear <axis = 1> (x, two, zeros)  [many] y = DequantizeLinear(q, two, zeros)",
            "'many': .* expected one scale of its input, got 2",
        ),
    ],
)
def test_what_reads_codes_and_is_not_covered_is_named(nodes: str, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message) as refusal:
        redpebble.compile(model_of(nodes), cache=False)
    assert YIELDS_CODES not in str(refusal.value)


def test_codes_that_nothing_reads_are_refused_where_they_are_made() -> None:
    nodes = "q = QuantizeLinear(x, s, z)  [mm] y = MatMulInteger(q, w, z, o)"
    with pytest.raises(UnsupportedModelError, match=f"'mm': operator MatMulInteger .*: {YIELDS_CODES}"):
        redpebble.compile(model_of(nodes, "int32[b, 2]"), cache=False)


def test_sums_that_an_unknown_operator_reads_say_so() -> None:
    nodes = "q = QuantizeLinear(x, s, z)  a = MatMulInteger(q, w, z, o)  c = Mod(a, k)  y = Cast <to = 1> (c)"
    left = redpebble.optimize(model_of(nodes), target="ort").left
    assert left is not None
    reasons = {list(left.model.graph)[at].op_type: reason for at, reason in left.reasons.items()}
    assert reasons["MatMulInteger"] == "Mod, which reads its result, is not covered"
