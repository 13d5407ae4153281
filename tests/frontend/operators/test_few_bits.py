"""MatMulNBits is a layer of the floats that its codes stand for, held against onnxruntime and against float64."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from redpebble.dialect.attributes.few_bits import ROUNDED_INPUTS
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from tests.support.few_bits import FewBits

CASES = {
    "symmetric": FewBits(96, 20),
    "groups of 16, odd outputs": FewBits(64, 21, size=16),
    "groups of 64, a part of a group": FewBits(200, 7, size=64),
    "groups of 128, less than a group": FewBits(70, 33, size=128, has_bias=True),
    "zeros, an odd number of groups": FewBits(96, 20, has_zeros=True),
    "zeros, groups of 16, bias": FewBits(100, 21, size=16, has_zeros=True, has_bias=True),
    "zeros as floats": FewBits(100, 21, size=16, has_zeros=True, float_zeros=True),
    "eight bits": FewBits(96, 20, bits=8),
    "eight bits, zeros, a part of a group": FewBits(100, 3, bits=8, size=64, has_zeros=True),
    "dense": FewBits(96, 20, zeros=0.0),
    "dense, rounded inputs": FewBits(200, 21, size=16, zeros=0.0, accuracy=4, has_zeros=True, has_bias=True),
    "dense, rounded inputs, a part of a group": FewBits(300, 33, size=128, zeros=0.0, accuracy=4),
    "zeros alone": FewBits(96, 20, zeros=1.0),
    "one output, three axes": FewBits(64, 1, rank=3),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [0, 1, 7, 17])
def test_the_layer_computes_what_the_node_does(name: str, rows: int) -> None:
    case = CASES[name]
    x = np.random.default_rng(3).standard_normal((rows, 2, case.inputs)[3 - case.rank :], dtype=np.float32)
    module = import_model(case.model, foreign="refuse").module
    found = np.asarray(interpret(module, {"x": x})[0])
    np.testing.assert_allclose(found, case.truth(x), rtol=1e-5, atol=1e-5)
    if x.size:
        expected = onnxruntime.InferenceSession(case.model.SerializeToString()).run(None, {"x": x})[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=0.05 if case.accuracy == ROUNDED_INPUTS else 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_codes_are_found_again(name: str) -> None:
    case = CASES[name]
    module = import_model(case.model, foreign="refuse").module
    (constant,) = [op for op in module.walk() if isinstance(op, SparseConstantOp | ConstantOp)][:1]
    assert isinstance(constant, ConstantOp) == name.startswith("dense")
    assert (constant.few_bits is None) == (name == "dense")
    if constant.few_bits is None:
        return
    codes, _, zeros = case.parts
    weight = constant.array if isinstance(constant, ConstantOp) else constant.weight
    stored = constant.few_bits.codes(weight)
    steps = stored.astype(int) - zeros.repeat(case.size, axis=1)
    expected = codes.astype(int) - zeros.repeat(case.size, axis=1)
    assert np.array_equal(steps[:, : case.inputs], expected[:, : case.inputs])


@pytest.mark.parametrize(("accuracy", "takes"), [(0, True), (4, False)])
def test_a_dense_one_stays_with_the_runtime(accuracy: int, takes: bool) -> None:
    case = replace(CASES["dense"], zeros=0.05, accuracy=accuracy)
    module = import_model(case.model, foreign="keep", dense_codes=takes).module
    assert [op.operator.data for op in module.walk() if isinstance(op, ForeignOp)] == ["com.microsoft::MatMulNBits"]


def _with_order(model: onnx.ModelProto) -> None:
    order = np.arange(96, dtype=np.int32) // 32
    model.graph.initializer.append(numpy_helper.from_array(order, "order"))
    model.graph.node[0].input.extend(["", "order"])


def _with_bits(model: onnx.ModelProto) -> None:
    (bits,) = [one for one in model.graph.node[0].attribute if one.name == "bits"]
    bits.i = 2


def _with_few_scales(model: onnx.ModelProto) -> None:
    (scales,) = [one for one in model.graph.initializer if one.name == "scales"]
    scales.CopyFrom(numpy_helper.from_array(np.ones(7, np.float32), "scales"))


def _with_zeros(value: float) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(numpy_helper.from_array(np.full(60, value, np.float32), "zeros"))
        model.graph.node[0].input.append("zeros")

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_with_order, "expected groups of neighbouring inputs, got an order of inputs, g_idx"),
        (_with_bits, "expected bits of 4 or 8, got 2"),
        (_with_few_scales, "expected 60 scales, got 7"),
        (_with_zeros(7.5), "expected zeros that are codes of 4 bits, got other numbers"),
        (_with_zeros(16), "expected zeros that are codes of 4 bits, got other numbers"),
        (_with_zeros(np.nan), "expected zeros that are codes of 4 bits, got other numbers"),
    ],
)
def test_other_forms_are_refused_in_words(change: object, message: str) -> None:
    model = CASES["symmetric"].model
    assert callable(change)
    change(model)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        import_model(model, foreign="refuse")
    assert "layer" in str(caught.value)
