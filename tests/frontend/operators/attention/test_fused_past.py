"""Operators that are attention, with keys and values of the past as inputs and outputs, held against onnxruntime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.dialect.ops.attention import Attention
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.export.export_model import export_model
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model

Array = NDArray[np.float32] | NDArray[np.int32]
Floats = NDArray[np.float32]
Shape = Sequence[str | int]

RNG = np.random.default_rng(0)
WEIGHT: Array = (RNG.standard_normal((16, 48)) / 4).astype(np.float32)

ROWS: Mapping[str, Shape] = {"q": ("b", "s", 16), "k": ("b", "s", 16), "v": ("b", "s", 16)}
PAST: Mapping[str, Shape] = {"pk": ("b", 2, "p", 8), "pv": ("b", 2, "p", 8)}
SHARED: Mapping[str, Shape] = {"k": ("b", "s", 8), "v": ("b", "s", 8), "pk": ("b", 1, "p", 8), "pv": ("b", 1, "p", 8)}
KNOWN: Mapping[str, Shape] = {
    "q": (2, 1, 16),
    **dict.fromkeys("kv", (2, 1, 8)),
    **dict.fromkeys(("pk", "pv"), (2, 1, 5, 8)),
}
MASK: Mapping[str, Shape] = {"m": ("b", 1, "s", "t")}
MICROSOFT = "com.microsoft"
ONNX_ORDER = ["q", "k", "v", "m", "pk", "pv"]
WITHOUT_MASK = ["q", "k", "v", "", "pk", "pv"]
MULTI_HEAD = ["q", "k", "v", "", "", "m", "pk", "pv"]


@dataclass(frozen=True)
class Case:
    """A node, its attributes, and the shapes of its inputs: samples b, own keys s, keys of the past p, all keys t."""

    operator: str
    shapes: Mapping[str, Shape]
    order: Sequence[str]
    attributes: Mapping[str, int]
    domain: str = ""
    constants: Mapping[str, Array] | None = None
    outputs: Sequence[str] = ("y", "keys", "values")

    def model(self, opset: int = 23) -> onnx.ModelProto:
        node = helper.make_node(self.operator, list(self.order), list(self.outputs), name="attends", domain=self.domain)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in self.attributes.items())
        graph = helper.make_graph(
            [node],
            "step",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in self.shapes.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs],
            [numpy_helper.from_array(array, name) for name, array in (self.constants or {}).items()],
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self, batch: int, own: int, past: int) -> dict[str, Floats]:
        rng = np.random.default_rng((batch, own, past))
        sizes = {"b": batch, "s": own, "p": past, "t": own + past}
        return {
            name: rng.standard_normal(
                [sizes[axis] if isinstance(axis, str) else axis for axis in shape], dtype=np.float32
            )
            for name, shape in self.shapes.items()
        }


TWO = {"q_num_heads": 2, "kv_num_heads": 2}
GROUPED = {"num_heads": 2, "kv_num_heads": 1}
ENDS: Mapping[str, Array] = {"ends": np.full(2, 5, np.int32), "total": np.array([6], np.int32)}
GROUPED_ORDER = ["q", "k", "v", "pk", "pv", "ends", "total"]

CASES = {
    "attention": Case("Attention", {**ROWS, **PAST}, WITHOUT_MASK, TWO),
    "masked": Case("Attention", {**ROWS, **MASK, **PAST}, ONNX_ORDER, TWO),
    "causal": Case("Attention", {**ROWS, **PAST}, WITHOUT_MASK, TWO | {"is_causal": 1}),
    "shared": Case("Attention", {**ROWS, **SHARED}, WITHOUT_MASK, {"q_num_heads": 2, "kv_num_heads": 1}),
    "apart": Case("Attention", {**dict.fromkeys("qkv", ("b", 2, "s", 8)), **PAST}, WITHOUT_MASK, {"is_causal": 1}),
    "no_past": Case("Attention", ROWS, "qkv", TWO),
    "multi_head": Case("MultiHeadAttention", {**ROWS, **MASK, **PAST}, MULTI_HEAD, {"num_heads": 2}, MICROSOFT),
    "multi_head_causal": Case(
        "MultiHeadAttention",
        {**ROWS, **MASK, **PAST},
        MULTI_HEAD,
        {"num_heads": 2, "unidirectional": 1},
        MICROSOFT,
    ),
    "with_weights": Case(
        "Attention",
        {"x": ("b", "s", 16), "past": (2, "b", 2, "p", 8)},
        ["x", "weight", "bias", "", "past"],
        {"num_heads": 2, "unidirectional": 1},
        MICROSOFT,
        {"weight": WEIGHT, "bias": np.ones(48, np.float32)},
        ("y", "present"),
    ),
    "grouped": Case("GroupQueryAttention", KNOWN, GROUPED_ORDER, GROUPED, MICROSOFT, ENDS),
}


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Floats]) -> list[Floats]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(result, np.float32) for result in session.run(None, dict(feeds))]


def check(found: Sequence[Floats], expected: Sequence[Floats]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_step_with_a_past_becomes_attention_and_a_longer_past(name: str) -> None:
    case = CASES[name]
    module = import_model(case.model(), foreign="refuse").module
    assert len([op for op in module.walk() if isinstance(op, Attention)]) == 1
    feeds = case.feeds(2, 3, 5)
    check([*interpret(module, feeds)], by_onnxruntime(case.model(), feeds))


@pytest.mark.parametrize("name", CASES)
def test_it_is_written_for_any_runtime(name: str) -> None:
    case = CASES[name]
    imported = import_model(case.model(), foreign="keep", whole=frozenset())
    written = onnx_ir.to_proto(export_model(imported.module, imported.model))
    assert {node.domain for node in written.graph.node} == {""}
    feeds = case.feeds(2, 3, 5)
    check(by_onnxruntime(written, feeds), by_onnxruntime(case.model(), feeds))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.domain])
def test_operators_of_microsoft_are_written_in_older_opsets_too(name: str) -> None:
    case = CASES[name]
    imported = import_model(case.model(12), foreign="keep", whole=frozenset())
    written = onnx_ir.to_proto(export_model(imported.module, imported.model))
    assert {node.domain for node in written.graph.node} == {""}
    for sizes in ((2, 3, 5), (1, 1, 0)) if case.shapes is not KNOWN else ((2, 1, 5),):
        feeds = case.feeds(*sizes)
        check(by_onnxruntime(written, feeds), by_onnxruntime(case.model(12), feeds))


@pytest.mark.parametrize("name", ["causal", *(pytest.param(name, marks=pytest.mark.slow) for name in CASES)])
def test_its_native_code_agrees_with_onnxruntime(name: str) -> None:
    case = CASES[name]
    network = redpebble.compile(case.model(), threads=2, cache=False)
    for sizes in ((2, 1, 5), (1, 3, 5), (3, 33, 140), (2, 7, 0)) if case.shapes is not KNOWN else ((2, 1, 5),):
        feeds = case.feeds(*sizes)
        expected = by_onnxruntime(case.model(), feeds)
        check(network.run(None, feeds), expected)


REFUSED = {
    "keys_alone": (
        Case("Attention", {**ROWS, "pk": PAST["pk"]}, ["q", "k", "v", "", "pk"], TWO),
        "expected keys and values of the past, or neither, got one of them",
    ),
    "lengths": (
        Case(
            "GroupQueryAttention",
            KNOWN,
            GROUPED_ORDER,
            GROUPED,
            MICROSOFT,
            {**ENDS, "ends": np.array([5, 4], np.int32)},
        ),
        "expected whole texts of 6, got ends at .5, 4.",
    ),
    "rotary": (
        Case("GroupQueryAttention", KNOWN, GROUPED_ORDER, GROUPED | {"do_rotary": 1}, MICROSOFT, ENDS),
        "expected do_rotary=0, got 1",
    ),
    "packed": (
        Case("GroupQueryAttention", KNOWN, ["q", "", "", *GROUPED_ORDER[3:]], GROUPED, MICROSOFT, ENDS),
        "expected queries, keys and values as three inputs, got packed ones",
    ),
    "shape": (
        Case(
            "Attention",
            {"x": ("b", "s", 16), "past": ("b", 2, "p", 8)},
            ["x", "weight", "", "", "past"],
            {"num_heads": 2},
            MICROSOFT,
            {"weight": WEIGHT},
            ("y", "present"),
        ),
        "expected a past of 2 x samples x heads x keys x features, got b x 2 x p x 8",
    ),
    "scores": (
        Case("Attention", {**ROWS, **PAST}, WITHOUT_MASK, TWO, outputs=("y", "keys", "values", "scores")),
        "expected only the result, keys and values to be used, got output 3 .scores.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_covered_is_named(name: str) -> None:
    case, message = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(case.model(), foreign="refuse")
