from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.dialect.ops.attention import AttentionOp
from redpebble.dialect.ops.movement import TransposeOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.export.export_model import export_model
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from redpebble.options import Options
from redpebble.pipeline import build

Floats = NDArray[np.float32]

HEADS, SIZE = 2, 8


@dataclass
class Draft:
    """What an exporter wrote around the two products."""

    scale: str = "scores"
    mask: list[str | int] | None = None
    guard: bool = False
    casts: int = 0
    """Casts of the weights to float, which they are, as Llama's exporters write them."""
    opset: int = 17
    axis: int = -1
    reads_scores: bool = False
    hiding: float | None = None
    """Number that a Where puts where `seen` is false."""
    seen: Literal["input", "constant"] = "input"

    def model(self) -> onnx.ModelProto:
        features = HEADS * SIZE
        constants = {
            "apart": np.array([0, 0, HEADS, SIZE]),
            "together": np.array([0, 0, features]),
            "scale": np.array(SIZE**-0.5, np.float32),
            "root": np.array([SIZE**0.5], np.float32),
            "quarter": np.array(SIZE**-0.25, np.float32),
            "zero": np.array(0.0, np.float32),
        }
        if self.hiding is not None:
            constants["hiding"] = np.array([self.hiding], np.float32)
        if self.seen == "constant":
            constants["seen"] = np.tri(7, dtype=np.bool_)
        nodes = [helper.make_node("Reshape", [name, "apart"], [f"{name}_apart"]) for name in "qkv"]
        orders = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
        nodes += [helper.make_node("Transpose", [f"{n}_apart"], [f"{n}0"], perm=order) for n, order in orders.items()]
        nodes += self._products()
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", "s", features]) for name in "qkv"]
        if self.mask is not None:
            inputs.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, self.mask))
        if self.hiding is not None and self.seen == "input":
            inputs.append(helper.make_tensor_value_info("seen", TensorProto.BOOL, ["b", 1, "s", "s"]))
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "s", features])]
        if self.reads_scores:
            outputs.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["b", HEADS, "s", "s"]))
        tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        for node in nodes:
            node.name = f"node_{node.output[0]}"
        graph = helper.make_graph(nodes, "attention", inputs, outputs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def _products(self) -> list[onnx.NodeProto]:
        node = helper.make_node
        nodes: list[onnx.NodeProto] = []
        queries, keys, scores = "q0", "k0", "scores"
        if self.scale == "operands":
            nodes += [node("Mul", ["q0", "quarter"], ["q1"]), node("Mul", ["quarter", "k0"], ["k1"])]
            queries, keys = "q1", "k1"
        nodes.append(node("MatMul", [queries, keys], ["scores"]))
        if self.scale == "scores":
            nodes.append(node("Div", ["scores", "root"], ["scaled"]))
            scores = "scaled"
        if self.hiding is not None:
            nodes.append(node("Where", ["seen", scores, "hiding"], ["hidden"]))
            scores = "hidden"
        if self.mask is not None:
            nodes.append(node("Add", [scores, "mask"], ["masked"]))
            scores = "masked"
        weights = "weights"
        nodes.append(node("Softmax", [scores], [weights], axis=self.axis))
        if self.guard:
            nodes += [node("IsNaN", [weights], ["nan"]), node("Where", ["nan", "zero", weights], ["guarded"])]
            weights = "guarded"
        for number in range(self.casts):
            nodes.append(node("Cast", [weights], [f"cast{number}"], to=TensorProto.FLOAT))
            weights = f"cast{number}"
        nodes.append(node("MatMul", [weights, "v0"], ["result"]))
        nodes.append(node("Transpose", ["result"], ["rows"], perm=[0, 2, 1, 3]))
        nodes.append(node("Reshape", ["rows", "together"], ["y"]))
        return nodes


DRAFTS = {
    "plain": Draft(),
    "scaled_operands": Draft(scale="operands"),
    "unscaled": Draft(scale="nowhere"),
    "padding_mask": Draft(mask=["b", 1, 1, "s"]),
    "mask_of_rank_2": Draft(mask=["s", "s"]),
    "mask_of_queries": Draft(mask=["b", 1, "s", 1]),
    "guarded": Draft(mask=["b", 1, "s", "s"], guard=True),
    "cast": Draft(casts=2),
    "old": Draft(opset=11, axis=3),
}


def feeds(draft: Draft, samples: int, length: int) -> dict[str, Floats]:
    rng = np.random.default_rng((samples, length))
    made = {name: rng.standard_normal((samples, length, HEADS * SIZE), dtype=np.float32) for name in "qkv"}
    if draft.mask is not None:
        shape = [{"b": samples, "s": length}.get(str(word), 1) for word in draft.mask]
        low = -np.inf if draft.guard else -1e4
        made["mask"] = np.where(rng.random(shape) < 0.4, np.float32(low), np.float32(0.0)).astype(np.float32)
    return made


def by_onnxruntime(model: onnx.ModelProto, arrays: Mapping[str, NDArray[np.generic]]) -> Floats:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result, *_) = session.run(None, arrays)
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize("name", DRAFTS)
def test_what_exporters_write_becomes_one_op(name: str) -> None:
    draft = DRAFTS[name]
    module = build(draft.model(), Options(), until="simplify")
    found = [op for op in module.walk() if isinstance(op, AttentionOp)]
    assert len(found) == 1
    assert found[0].weighting.scale == pytest.approx(1.0 if name == "unscaled" else SIZE**-0.5)
    assert found[0].weighting.nan_as_zero == draft.guard
    assert not [op for op in module.walk() if isinstance(op, TransposeOp)]
    arrays = feeds(draft, 2, 7)
    result, *_ = interpret(module, arrays)
    np.testing.assert_allclose(result, by_onnxruntime(draft.model(), arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["padding_mask", "guarded"])
def test_its_native_code_agrees_with_onnxruntime(name: str) -> None:
    draft = DRAFTS[name]
    network = redpebble.compile(draft.model(), threads=2)
    for samples, length in ((0, 5), (1, 1), (7, 3), (2, 33)):
        arrays = feeds(draft, samples, length)
        result = network.run(None, arrays)[0]
        np.testing.assert_allclose(result, by_onnxruntime(draft.model(), arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", DRAFTS)
def test_it_is_written_in_standard_operators(name: str) -> None:
    draft = DRAFTS[name]
    imported = import_model(draft.model(), foreign="keep", whole=frozenset())
    written = onnx_ir.to_proto(export_model(imported.module, imported.model))
    assert len([op for op in imported.module.walk() if isinstance(op, AttentionOp)]) == 1
    arrays = feeds(draft, 2, 7)
    expected = by_onnxruntime(draft.model(), arrays)
    np.testing.assert_allclose(by_onnxruntime(written, arrays), expected, rtol=1e-4, atol=1e-5)
    again = import_model(written, foreign="refuse").module
    assert len([op for op in again.walk() if isinstance(op, AttentionOp)]) == 1


@pytest.mark.parametrize("target", ["portable", "ort"])
def test_attention_that_no_network_holds_stays_as_it_is(target: Literal["portable", "ort"]) -> None:
    result = redpebble.optimize(DRAFTS["guarded"].model(), target=target)
    assert not result.modified
    assert "ai.onnx::MatMul" in result.foreign


def test_what_is_read_elsewhere_stays() -> None:
    draft = Draft(reads_scores=True)
    with pytest.raises(UnsupportedModelError, match=r"operator Softmax .*expected known sizes from axis "):
        import_model(draft.model(), foreign="refuse")
    module = import_model(draft.model(), foreign="keep", whole=frozenset()).module
    assert not [op for op in module.walk() if isinstance(op, AttentionOp)]


def test_a_softmax_over_another_axis_is_no_attention() -> None:
    with pytest.raises(UnsupportedModelError, match="expected a constant operand, or at most 4096 values in a sum"):
        import_model(Draft(axis=1).model(), foreign="refuse")


LOWEST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize(
    "draft",
    [
        Draft(hiding=-np.inf, guard=True),
        Draft(hiding=LOWEST),
        Draft(hiding=LOWEST, mask=["b", 1, 1, "s"]),
        Draft(hiding=-1e30, scale="operands"),
    ],
)
def test_scores_that_a_where_hides_are_masked(draft: Draft) -> None:
    imported = import_model(draft.model(), foreign="keep", whole=frozenset())
    assert len([op for op in imported.module.walk() if isinstance(op, AttentionOp)]) == 1
    written = onnx_ir.to_proto(export_model(imported.module, imported.model))
    for length in (1, 7):
        arrays: dict[str, NDArray[np.generic]] = {**feeds(draft, 2, length)}
        seen = np.random.default_rng(length).random((2, 1, length, length)) < 0.5
        seen[1, 0, 0] = False
        arrays["seen"] = seen
        expected = by_onnxruntime(draft.model(), arrays)
        np.testing.assert_allclose(by_onnxruntime(written, arrays), expected, rtol=1e-4, atol=1e-5)


def test_scores_that_a_constant_hides_are_masked_in_native_code() -> None:
    draft = Draft(hiding=-np.inf, seen="constant", mask=["b", 1, 1, "s"])
    arrays = feeds(draft, 3, 7)
    result = redpebble.compile(draft.model()).run(None, arrays)[0]
    np.testing.assert_allclose(result, by_onnxruntime(draft.model(), arrays), rtol=1e-4, atol=1e-5)


def test_a_number_that_scores_change_hides_nothing() -> None:
    # where every key is hidden, the scores decide
    module = import_model(Draft(hiding=-1e4).model(), foreign="keep", whole=frozenset()).module
    assert not [op for op in module.walk() if isinstance(op, AttentionOp)]


@pytest.mark.parametrize("target", ["portable", "ort"])
def test_a_where_that_no_network_needs_masks_for_stays_alone(target: Literal["portable", "ort"]) -> None:
    proto = Draft(hiding=-np.inf).model()
    result = redpebble.optimize(proto, target=target)
    assert not result.modified
    assert [node.op_type for node in result.model.graph] == [node.op_type for node in proto.graph.node]
    assert set(result.model.graph.initializers) <= {tensor.name for tensor in proto.graph.initializer}
