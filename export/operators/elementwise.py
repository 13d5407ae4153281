"""Operators of two operands, broadcast against each other."""

from types import MappingProxyType
from typing import Final

import onnx_ir as ir

from redpebble.dialect.ops.elementwise import AddOp, BinaryOp, DivOp, MulOp, PreluOp, SubOp
from redpebble.export.writing.node_builder import Draft

OPERATORS: Final = MappingProxyType[type[BinaryOp], str](
    {AddOp: "Add", DivOp: "Div", MulOp: "Mul", PreluOp: "PRelu", SubOp: "Sub"}
)


def emit_binary(op: BinaryOp, draft: Draft) -> tuple[ir.Value]:
    """The operator of the same name."""
    return (draft.node(OPERATORS[type(op)], draft.operand(op.left), draft.operand(op.right)),)
