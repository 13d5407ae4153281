"""Sizes of values that nodes `Shape` ask for, as those of earlier values: a node that waits for no layer comes first.

```
n = Shape(h)[0]    of h = x W [nodes, 16]: x has as many
e = Shape(m)[0]    of m = Gather(h, sources): sources have as many
```
"""

import onnx_ir
from xdsl.ir import SSAValue

from ...dialect.ops.foreign import INT64
from ...dialect.tensors import is_f32_tensor
from ..operators.scope import ValueScope


def source_of_shape(node: onnx_ir.Node, operand: SSAValue, scope: ValueScope) -> SSAValue:
    """Return a value that was defined before `operand` and has the sizes that a node Shape is asked for.

    That is one of the same shape, or, where only the first size is of use, one with as many rows.
    """
    value = node.inputs[0]
    shape = None if value is None else scope.inferred_shape(value)
    if value is None or shape is None or not _only_first(node, len(shape), scope):
        return scope.first_of_shape(operand)
    gather = value.producer()
    if gather is not None and (gather.domain, gather.op_type) == ("", "Gather") and len(shape) == 2:
        axis, index = gather.attributes.get("axis"), gather.inputs[1]
        entries = None if index is None else scope.inferred_shape(index)
        known = None if index is None or scope.constant_of(index) is not None else scope.value_of(index)
        is_rows = (0 if axis is None else axis.as_int()) in (0, -2) and entries is not None and len(entries) == 1
        if is_rows and known is not None and known.type == INT64 and _counts_from_front(node, scope):
            # one size fewer than was stated
            node.outputs[0].shape = None
            return known
    fewer = len(shape) > 2 and _counts_from_front(node, scope)
    has_rows = is_f32_tensor(operand.type) and (len(shape) == 2 or fewer)
    found = scope.argument_of_rows(operand) if has_rows else operand
    if fewer and found is not operand:
        node.outputs[0].shape = None
    return scope.first_of_shape(operand) if found is operand else found


def _only_first(node: onnx_ir.Node, rank: int, scope: ValueScope) -> bool:
    """Return whether nothing but the first size of a shape is used."""
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    if end is not None and (0 if start is None else start.as_int()) in (0, -rank) and end.as_int() in (1, 1 - rank):
        return True
    return not node.outputs[0].is_graph_output() and all(
        _takes_first(use.node, rank, scope) for use in node.outputs[0].uses()
    )


def _takes_first(node: onnx_ir.Node, rank: int, scope: ValueScope) -> bool:
    """Return whether a node takes the first entry of a shape, and no other one."""
    numbers = [_numbers(value, scope) for value in node.inputs[1:]]
    match node.op_type:
        case "Gather":
            return numbers[0] in ([0], [-rank])
        case "Slice":
            plain = numbers[2:] in ([], [[0]], [[0], [1]])
            return plain and numbers[0] in ([0], [-rank]) and numbers[1] in ([1], [1 - rank])
        case _:
            return False


def _counts_from_front(node: onnx_ir.Node, scope: ValueScope) -> bool:
    """Return whether a shape may lose its last size, as nothing counts from there."""
    stated = [node.attributes[name].as_int() for name in ("start", "end") if name in node.attributes]
    taken = [_numbers(value, scope) for use in node.outputs[0].uses() for value in use.node.inputs[1:3]]
    return all(number >= 0 for number in (*stated, *(one for found in taken for one in found or [-1])))


def _numbers(value: onnx_ir.Value | None, scope: ValueScope) -> list[int] | None:
    array = None if value is None else scope.constant_of(value)
    return None if array is None or array.dtype.kind != "i" else [int(one) for one in array.reshape(-1)]
