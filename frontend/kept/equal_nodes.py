"""Nodes that are kept and compute the same from the same values: each is kept once."""

from collections.abc import Hashable

import onnx_ir
from xdsl.ir import SSAValue

from ...dialect.ops.foreign import ForeignOp
from ...dialect.semantics.array_operators import OPERATORS
from ..operators.scope import ValueScope

MOST_ENTRIES = 64
"""Entries of a constant that is compared: axes and sizes, not tables."""


class EqualNodes:
    """The nodes kept so far, by what they compute."""

    def __init__(self) -> None:
        self._known: dict[Hashable, ForeignOp] = {}

    def first_of(self, node: onnx_ir.Node, op: ForeignOp, scope: ValueScope) -> ForeignOp:
        """Return the first op that computes what `op` does, which stands for `node`: itself where it is new."""
        if node.domain != "" or node.op_type not in OPERATORS or any(one.is_graph_output() for one in node.outputs):
            return op
        reads = {name.data: value for name, value in zip(op.names, op.reads, strict=True)}
        inputs = [_key(value, reads, scope) for value in node.inputs]
        if None in inputs:
            return op
        attributes = tuple(sorted((name, str(attribute.value)) for name, attribute in node.attributes.items()))
        key = (node.op_type, attributes, tuple(inputs), len(node.outputs))
        return self._known.setdefault(key, op)


def _key(value: onnx_ir.Value | None, reads: dict[str, SSAValue], scope: ValueScope) -> Hashable:
    """Return what tells an input from others; None for a constant of many entries."""
    if value is None:
        return ()
    if value.name in reads:
        return reads[value.name]
    array = scope.constant_of(value)
    if array is None or array.size > MOST_ENTRIES:
        return None
    return array.dtype.str, array.shape, array.tobytes()
