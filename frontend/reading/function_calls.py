"""Calls of functions by functions, and the size of each once calls are replaced by what they call."""

from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

import onnx_ir

from ..errors import InvalidModelError, UnsupportedModelError

DEEPEST: Final = 64
"""Functions that call each other one inside the other, as far as ONNX's own inference follows them."""

MOST_NODES: Final = 1_000_000
"""Nodes of a model with its functions written out."""


class CallTree(NamedTuple):
    """All calls of a model, written out."""

    node_count: int
    depth: int
    """Functions one inside the other."""


def call_tree(model: onnx_ir.Model) -> CallTree:
    """Return how large a model is with its functions written out, without doing so.

    Raises:
        InvalidModelError: functions call each other in a circle.
    """
    bodies = {key: [node.op_identifier() for node in each.all_nodes()] for key, each in model.functions.items()}
    calls = {key: {called for called in body if called in bodies} for key, body in bodies.items()}
    trees: dict[onnx_ir.OperatorIdentifier, CallTree] = {}
    try:
        order = [*TopologicalSorter(calls).static_order()]
    except CycleError as error:
        names = " calls ".join("::".join(filter(None, key)) for key in reversed(error.args[1]))
        raise InvalidModelError(f"model-local functions call each other in a circle: {names}") from error
    for key in order:
        trees[key] = _tree(bodies[key], trees)
    return _tree([node.op_identifier() for node in model.graph.all_nodes()] if bodies else [], trees)


def check_written_out(model: onnx_ir.Model) -> None:
    """Check that the functions of a model can be written out, as onnxruntime does with all of them.

    Raises:
        InvalidModelError: functions call each other in a circle.
        UnsupportedModelError: they make too many nodes.
    """
    count = call_tree(model).node_count
    if count > MOST_NODES:
        raise UnsupportedModelError(f"expected at most {MOST_NODES} nodes of model-local functions, got {count}")


def _tree(body: list[onnx_ir.OperatorIdentifier], trees: dict[onnx_ir.OperatorIdentifier, CallTree]) -> CallTree:
    inner = [trees[called] for called in body if called in trees]
    count = len(body) - len(inner) + sum(tree.node_count for tree in inner)
    return CallTree(count, max((tree.depth + 1 for tree in inner), default=0))
