"""Nodes that are kept: equal ones once, and sizes asked for where they are known first."""

import onnx
import onnx.parser

from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.frontend.import_model import import_model

MODEL = """<ir_version: 9, opset_import: ["": 18]>
g (float[n, 4] x, int64[e] i, float[4, 3] w) => (float[n, 3] y, int64[1] a, int64[e] d, int64[1] b)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}> {
    h = MatMul (x, w) y = Mish (h) s = Shape (h) a = Slice (s, zero, one)
    m = Gather (y, i) t = Shape (m) b = Slice (t, zero, one)
    u = Add (i, zero) v = Add (i, zero) p = Mul (u, v) q = Add (i, one) d = Mul (p, q)
}"""


def foreign(text: str) -> dict[str, list[str]]:
    """Return the names of what each kept operator reads."""
    found: dict[str, list[str]] = {}
    for op in import_model(onnx.parser.parse_model(text), foreign="keep").module.walk():
        if isinstance(op, ForeignOp):
            names = [value.name_hint or "" for value in op.reads]
            found.setdefault(op.operator.data.split("::")[1], []).extend(names)
    return found


def test_first_sizes_are_asked_of_what_is_known_before_any_layer() -> None:
    assert foreign(MODEL)["Shape"] == ["x", "i"]


def test_other_sizes_are_asked_of_the_value_itself() -> None:
    known = foreign(MODEL.replace("Slice (s, zero, one)", "Slice (s, one, two)").replace("(t, zero", "(t, one"))
    assert known["Shape"] == ["h", "m"]


def test_equal_nodes_are_kept_once() -> None:
    known = foreign(MODEL)
    assert known["Add"] == ["i", "i"]
    assert known["Mul"] == ["u", "u", "p", "q"]
