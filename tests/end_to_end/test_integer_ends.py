"""Networks whose inputs or outputs are bytes: the same bytes as onnxruntime's, in a session and as native code."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import redpebble
from redpebble.export.sparse_networks.node_format import DOMAIN

Bytes = NDArray[np.generic]

OPERATORS = """
<ir_version: 9, opset_import: ["" : 17]>
ends (T[n, 64] x) => (T[n, 32] y) <float xs = {0.05}, T xz = {ZX}, float ys = {0.3}, T yz = {ZY}> {
  h = QLinearMatMul(x, xs, xz, w, s, z, ys, yz)
  y = QLinearMatMul(h, ys, yz, v, s, z, ys, yz)
}
"""

QGEMM = """
<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
ends (T[n, 64] x) => (T[n, 32] y) <float xs = {0.05}, T xz = {ZX}, float ys = {0.3}, T yz = {ZY}> {
  y = com.microsoft.QGemm(x, xs, xz, w, s, z, "", ys, yz)
}
"""

PRODUCTS = """
<ir_version: 9, opset_import: ["" : 17]>
ends (T[n, 64] x) => (T[n, 32] y) <float xs = {0.05}, T xz = {ZX}, float ys = {0.3}, T yz = {ZY}> {
  d = DequantizeLinear(x, xs, xz)
  u = DequantizeLinear<axis = 1>(w, s, z)
  h = MatMul(d, u)
  y = QuantizeLinear(h, ys, yz)
}
"""

INTEGERS = """
<ir_version: 9, opset_import: ["" : 17]>
ends (T[n, 64] x) => (float[n, 32] y) <T xz = {ZX}> {
  p = MatMulInteger(x, w, xz)
  f = Cast<to = 1>(p)
  y = Mul(f, s)
}
"""

AMONG_OTHERS = """
<ir_version: 9, opset_import: ["" : 17]>
ends (T[n, 64] x) => (T[n, 32] y, T[n, 64] m) <float xs = {0.05}, T xz = {ZX}, float ys = {0.3}, T yz = {ZY}> {
  h = QLinearMatMul(x, xs, xz, w, s, z, ys, yz)
  m = Concat<axis = 1>(h, h)
  y = QLinearMatMul(h, ys, yz, v, s, z, ys, yz)
}
"""


def model_of(text: str, kind: str, density: float = 0.1) -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    zeros = {"uint8": ("120", "0"), "int8": ("-3", "5")}[kind]
    model = parser.parse_model(
        text.replace("T[", f"{kind}[").replace("T ", f"{kind} ").replace("ZX", zeros[0]).replace("ZY", zeros[1])
    )
    # two products of 255 and 64 fit into 16 bits, where onnxruntime adds pairs on CPUs without VNNI
    weights = {
        name: (rng.integers(-64, 65, shape) * (rng.random(shape) < density)).astype(np.int8)
        for name, shape in (("w", (64, 32)), ("v", (32, 32)))
    }
    arrays = {**weights, "s": rng.uniform(0.001, 0.02, 32).astype(np.float32), "z": np.zeros(32, np.int8)}
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(numpy_helper.from_array(one, name) for name, one in arrays.items() if name in read)
    return model


def codes(kind: str, rows: int = 37) -> Bytes:
    ends = np.iinfo(kind)
    return np.random.default_rng(rows).integers(ends.min, ends.max + 1, (rows, 64)).astype(kind)


def outcome(model: onnx.ModelProto, x: Bytes) -> list[Any]:
    """Return what onnxruntime computes."""
    return list(
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    )


FORMS = {"qlinear": OPERATORS, "qgemm": QGEMM, "qdq": PRODUCTS, "integer": INTEGERS}


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("qlinear", "int8"),
        *(pytest.param(form, kind, marks=pytest.mark.slow) for form in FORMS for kind in ("uint8", "int8")),
    ],
)
def test_bytes_at_the_ends_are_those_of_onnxruntime(form: str, kind: str) -> None:
    model, x = model_of(FORMS[form], kind), codes(kind)
    expected = outcome(model, x)
    written = redpebble.optimize(model)
    # the layers read codes, and yield some where these are an output
    (node,) = written.model.graph
    assert (node.domain, node.op_type) == (DOMAIN, "SparseNetwork_0" if form == "integer" else "SparseNetwork_codes_0")
    sessions = [redpebble.session(one) for one in (model, written.proto)]
    for found in (*(session.run(None, {"x": x}) for session in sessions), outcome(written.proto, x)):
        assert [one.dtype for one in found] == [one.dtype for one in expected]
        assert np.array_equal(found[0], expected[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("density", [0.1, 1.0], ids=["sparse", "dense"])
def test_native_code_takes_and_yields_bytes(kind: str, density: float) -> None:
    model, x = model_of(OPERATORS, kind, density), codes(kind)
    network = redpebble.compile(model, cache=False)
    assert network.get_inputs()[0].type == network.get_outputs()[0].type == f"tensor({kind})"
    (found,) = network.run(None, {"x": x})
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})  # pyright: ignore[reportUnknownMemberType]
    assert found.dtype == np.dtype(kind)
    # the reference scales by one factor after the other, in another order
    difference = np.abs(found.astype(int) - np.asarray(expected).astype(int))
    assert difference.max() <= 1
    assert np.mean(difference > 0) < 0.01
    if density == 1.0:
        assert redpebble.optimize(model).networks == ()
    assert np.array_equal(network.bind({"x": x}).run()[0], found)
    with pytest.raises(ValueError, match=f"expected dtype {kind}, got float32"):
        network.run(None, {"x": x.astype(np.float32)})


@pytest.mark.slow
def test_codes_that_others_read_too_stay_what_they_are() -> None:
    model, x = model_of(AMONG_OTHERS, "int8"), codes("int8")
    for found, expected in zip(redpebble.session(model).run(None, {"x": x}), outcome(model, x), strict=True):
        assert np.array_equal(found, expected)
