from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.dialect.ops.attention import AttentionOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.export.export_model import export_model
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model

Floats = NDArray[np.float32]

RNG = np.random.default_rng(0)
WEIGHT: Floats = (RNG.standard_normal((16, 48)) / 4).astype(np.float32)
BIAS = RNG.standard_normal(48).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A node, the shapes of its inputs, and its constants."""

    operator: str
    inputs: Mapping[str, Sequence[str | int]]
    attributes: Mapping[str, int | float]
    order: Sequence[str]
    domain: str = ""
    constants: Mapping[str, Floats] = field(default_factory=dict[str, Floats])

    def model(self) -> onnx.ModelProto:
        node = helper.make_node(self.operator, list(self.order), ["y"], name="attends", domain=self.domain)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in self.attributes.items())
        graph = helper.make_graph(
            [node],
            "attention",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in self.inputs.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self, batch: int, length: int) -> dict[str, Floats]:
        rng = np.random.default_rng((batch, length))
        sizes = {"b": batch, "s": length}
        return {
            name: rng.standard_normal([sizes.get(str(axis), 0) or int(axis) for axis in shape], dtype=np.float32)
            for name, shape in self.inputs.items()
        }


ROWS = {"q": ("b", "s", 16), "k": ("b", "s", 16), "v": ("b", "s", 16)}
GROUPED = {"q": ("b", "s", 32), "k": ("b", "s", 16), "v": ("b", "s", 8)}
APART = {"q": ("b", 2, "s", 8), "k": ("b", 2, "s", 8), "v": ("b", 2, "s", 8)}
MASK = {"m": ("b", 1, "s", "s")}
TWO = {"q_num_heads": 2, "kv_num_heads": 2}

CASES = {
    "rows": Case("Attention", ROWS, TWO, "qkv"),
    "masked": Case("Attention", ROWS | MASK, TWO, "qkvm"),
    "causal": Case("Attention", ROWS, TWO | {"is_causal": 1}, "qkv"),
    "grouped": Case("Attention", GROUPED, {"q_num_heads": 4, "kv_num_heads": 2, "scale": 0.5}, "qkv"),
    "apart": Case("Attention", APART, {}, "qkv"),
    "multi_head": Case("MultiHeadAttention", ROWS, {"num_heads": 2}, "qkv", "com.microsoft", {"bias": BIAS}),
    "multi_head_biased": Case(
        "MultiHeadAttention",
        ROWS | MASK,
        {"num_heads": 2},
        ["q", "k", "v", "bias", "", "m"],
        "com.microsoft",
        {"bias": BIAS},
    ),
    "multi_head_causal": Case(
        "MultiHeadAttention", ROWS, {"num_heads": 2, "unidirectional": 1}, "qkv", "com.microsoft"
    ),
    "with_weights": Case(
        "Attention",
        {"x": ("b", "s", 16)},
        {"num_heads": 2},
        ["x", "weight", "bias"],
        "com.microsoft",
        {"weight": WEIGHT, "bias": BIAS},
    ),
}


def by_onnxruntime(model: onnx.ModelProto, arrays: Mapping[str, Floats]) -> Floats:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, dict(arrays))
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize("name", CASES)
def test_an_operator_that_is_attention_becomes_one(name: str) -> None:
    case = CASES[name]
    module = import_model(case.model(), foreign="refuse").module
    assert len([op for op in module.walk() if isinstance(op, AttentionOp)]) == 1
    arrays = case.feeds(2, 7)
    (result,) = interpret(module, arrays)
    np.testing.assert_allclose(result, by_onnxruntime(case.model(), arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["grouped", "causal"])
def test_its_native_code_agrees_with_onnxruntime(name: str) -> None:
    case = CASES[name]
    network = redpebble.compile(case.model())
    for batch, length in ((1, 1), (3, 33)):
        arrays = case.feeds(batch, length)
        result = network.run(None, arrays)[0]
        np.testing.assert_allclose(result, by_onnxruntime(case.model(), arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_it_is_written_for_any_runtime(name: str) -> None:
    case = CASES[name]
    imported = import_model(case.model(), foreign="keep", whole=frozenset())
    written = onnx_ir.to_proto(export_model(imported.module, imported.model))
    assert {node.domain for node in written.graph.node} == {""}
    arrays = case.feeds(2, 7)
    expected = by_onnxruntime(case.model(), arrays)
    np.testing.assert_allclose(by_onnxruntime(written, arrays), expected, rtol=1e-4, atol=1e-5)


REFUSED = {
    "softcap": (Case("Attention", ROWS, TWO | {"softcap": 2.0}, "qkv"), "expected softcap=0.0, got 2.0"),
    "no_heads": (
        Case("MultiHeadAttention", ROWS, {}, "qkv", "com.microsoft"),
        "expected rows of the same samples, with heads",
    ),
    "padding": (
        Case(
            "MultiHeadAttention", ROWS | {"p": ("b", "s")}, {"num_heads": 2}, ["q", "k", "v", "", "p"], "com.microsoft"
        ),
        "and what is added to scores, got input 4",
    ),
    "cross_causal": (
        Case("Attention", ROWS | {"k": ("b", 5, 16), "v": ("b", 5, 16)}, TWO | {"is_causal": 1}, "qkv"),
        "expected as many keys as queries for causal attention, got s queries and 5 keys",
    ),
    "short_mask": (
        Case("Attention", ROWS | {"m": ("b", 1, "s", 1)}, TWO, "qkvm"),
        "expected a mask of s keys, got b x 1 x s x 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_covered_is_named(name: str) -> None:
    case, message = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(case.model(), foreign="refuse")
