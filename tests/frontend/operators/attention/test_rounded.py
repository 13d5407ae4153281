"""Attention in networks that onnxruntime's own quantizer wrote: what is rounded between its nodes is part of it.

Results are compared with what onnxruntime computes node by node. With all its optimizations it takes a table instead of
Softmax between codes, and its own results are a step apart.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

import redpebble
from redpebble.dialect.ops.attention import AttentionOp
from redpebble.dialect.ops.movement import TransposeOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.export.export_model import export_model
from redpebble.frontend.import_model import import_model
from redpebble.options import Options
from redpebble.pipeline import build
from tests.frontend.operators.attention.test_products import DRAFTS, Draft, feeds
from tests.support.quantized_models import statically_quantized

EACH = ["MatMul", "Softmax", "Div", "Mul", "Add", "Transpose", "Reshape"]

CASES = {
    "plain": (Draft(), ["MatMul"]),
    "plain, each node": (Draft(), EACH),
    "scaled operands": (Draft(scale="operands"), ["MatMul"]),
    "scaled operands, each node": (Draft(scale="operands"), EACH),
    "masked": (Draft(mask=["b", 1, 1, "s"]), ["MatMul"]),
    "masked, each node": (Draft(mask=["b", 1, 1, "s"]), [*EACH[:4], *EACH[5:]]),
    "masked softmax, each node": (Draft(mask=["s", "s"]), EACH),
    "guarded": (Draft(mask=["b", 1, "s", "s"], guard=True), ["MatMul"]),
    "guarded, rounded twice": (Draft(guard=True), ["MatMul", "Softmax"]),
    "two casts": (DRAFTS["cast"], ["MatMul"]),
}


def quantized(draft: Draft, operators: list[str], folder: Path) -> onnx.ModelProto:
    return statically_quantized(draft.model(), [feeds(draft, 2, length) for length in (7, 9)], folder, operators)


def node_by_node(model: onnx.ModelProto, arrays: Mapping[str, NDArray[np.generic]]) -> NDArray[np.generic]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, arrays)[0])


def attentions(module: ModuleOp) -> list[AttentionOp]:
    return [op for op in module.walk() if isinstance(op, AttentionOp)]


def check_codes(result: NDArray[np.generic], expected: NDArray[np.generic]) -> None:
    """Check that results are within one step of the codes that both are rounded to, and that most are equal."""
    values = np.unique(expected.astype(np.float64))
    step = np.diff(values)[np.diff(values) > 1e-4].min()
    difference = np.abs(result.astype(np.float64) - expected.astype(np.float64))
    assert difference.max() < 1.01 * step
    assert np.mean(difference < 1e-5) > 0.98


@pytest.mark.parametrize("name", CASES)
def test_roundings_between_its_nodes_are_part_of_it(name: str, tmp_path: Path) -> None:
    draft, operators = CASES[name]
    model = quantized(draft, operators, tmp_path)
    module = build(model, Options(), until="simplify")
    (found,) = attentions(module)
    roundings = found.weighting.roundings
    assert roundings.products
    assert roundings.weights
    assert bool(roundings.scores) == (draft.mask is not None and "Softmax" in operators)
    # what is rounded is not moved to and fro
    assert not [op for op in module.walk() if isinstance(op, TransposeOp)]
    arrays = feeds(draft, 2, 9)
    expected = node_by_node(model, arrays)
    check_codes(np.asarray(interpret(module, arrays)[0]), expected)


@pytest.mark.parametrize("name", ["plain", "scaled operands, each node", "masked", "guarded"])
def test_native_codes_are_those_of_onnxruntime(name: str, tmp_path: Path) -> None:
    draft, operators = CASES[name]
    model = quantized(draft, operators, tmp_path)
    network = redpebble.compile(model)
    for samples, length in ((1, 1), (7, 3), (2, 33), (1, 140)):
        arrays = feeds(draft, samples, length)
        check_codes(network.run(None, arrays)[0], node_by_node(model, arrays))


@pytest.mark.parametrize("name", CASES)
def test_it_is_written_with_its_roundings(name: str, tmp_path: Path) -> None:
    draft, operators = CASES[name]
    model = quantized(draft, operators, tmp_path)
    imported = import_model(model, foreign="keep", whole=frozenset())
    written = onnx_ir.to_proto(export_model(imported.module, imported.model))
    (before,), (after,) = attentions(imported.module), attentions(import_model(written, foreign="refuse").module)
    assert before.weighting.roundings == after.weighting.roundings
    arrays = feeds(draft, 2, 7)
    check_codes(node_by_node(written, arrays), node_by_node(model, arrays))
