"""Recurrences as the operators of ONNX that they came from, weights as the model has them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import onnx_ir as ir
from xdsl.ir import Operation

from ...dialect.attributes.activations import ACTIVATIONS
from ...dialect.ops.recurrences import CELLS, DIRECTIONS, RecurrenceOp
from ..writing.node_builder import Attribute, Emitter, NodeBuilder


def emit_recurrence(op: RecurrenceOp, builder: NodeBuilder) -> Sequence[ir.Value]:
    """LSTM, GRU or RNN."""
    optional = (op.bias, op.lengths, op.start_h, op.start_c, op.peepholes)
    operands = (op.x, op.weight, op.recurrent, *optional)
    inputs = [None if value is None else builder.operand(value) for value in operands]
    if op.kind.data != "lstm":
        del inputs[-2:]
    while inputs[-1] is None:
        inputs.pop()
    cell, facts = op.cell, CELLS[op.kind.data]
    attributes: dict[str, Attribute] = {"hidden_size": op.hidden, "direction": cell.direction}
    kinds = [one.kind for one in cell.activations]
    if kinds != [*facts.activations] * len(DIRECTIONS[cell.direction]):
        operators = [ACTIVATIONS[kind].onnx for kind in kinds]
        attributes["activations"] = [one.name for one in operators if one is not None]
        for place, word in enumerate(("alpha", "beta")):
            values = [one.values[place] for one in cell.activations if place < len(one.values)]
            if values:
                attributes[f"activation_{word}"] = values
    if cell.clip:
        attributes["clip"] = cell.clip
    if cell.linear_before_reset:
        attributes["linear_before_reset"] = 1
    return builder.parts(facts.operator, inputs, len(op.outputs), **attributes)


RECURRENCE_EMITTERS: Final[Mapping[type[Operation], Emitter]] = MappingProxyType({RecurrenceOp: emit_recurrence})
