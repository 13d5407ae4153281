"""Linear layers: one Gemm or MatMul, an Add where Gemm does not reach, and the activation's nodes."""

import onnx_ir as ir

from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import shape_of
from redpebble.export.operators.activations import emit_activation
from redpebble.export.writing.node_builder import Draft

GEMM_WITHOUT_C = 11
"""The opset from which Gemm may come without C."""


def emit_linear(op: LinearOp, draft: Draft) -> tuple[ir.Value]:
    """Gemm for matrices; MatMul and Add for any other rank, which Gemm refuses."""
    value = _gemm(op, draft) if len(shape_of(op.x)) == 2 else _matmul(op, draft)
    if op.activation is not None:
        value = emit_activation(op.activation, value, draft)
    return (value,)


def _gemm(op: LinearOp, draft: Draft) -> ir.Value:
    x = draft.operand(op.x)
    weight, transposed = draft.weight(op.weight)
    if op.bias is None and not transposed:
        return draft.node("MatMul", x, weight)
    inputs = [x, weight]
    if op.bias is not None:
        inputs.append(draft.bias(op.bias))
    elif draft.opset < GEMM_WITHOUT_C:
        inputs.append(draft.scalar(0.0))
    return draft.node("Gemm", *inputs, transB=1) if transposed else draft.node("Gemm", *inputs)


def _matmul(op: LinearOp, draft: Draft) -> ir.Value:
    x = draft.operand(op.x)
    product = draft.node("MatMul", x, draft.operand(op.weight))
    if op.bias is None:
        return product
    wide = len(shape_of(op.x)) > 1
    return draft.node("Add", product, draft.bias(op.bias) if wide else draft.operand(op.bias))
