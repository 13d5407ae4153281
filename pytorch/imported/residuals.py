"""Hidden states of a graph: sums of what a layer adds to what went past it."""

from collections.abc import Iterable
from typing import Final

import onnx_ir

from .stored_weights import Constants

BESIDE: Final = 8
"""Nodes between a layer and the sum that takes what it answers, at most."""

PASSED: Final = frozenset(
    [
        "Add",
        "BatchNormalization",
        "Cast",
        "DequantizeLinear",
        "Div",
        "Dropout",
        "Identity",
        "Mul",
        "QuantizeLinear",
        "Reshape",
        "Transpose",
    ]
)
"""Operators that may stand between a layer and a residual sum."""

SKIPS: Final = frozenset({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})


def residual_sums(nodes: Iterable[onnx_ir.Node], layers: set[int], held: Constants) -> set[str]:
    """Return the names of sums of two computed values, of which one comes from a layer (by `id` of its node).

    The one that comes from a layer may have been scaled or normed on the way; the other has the layer behind it, or
    is an input of the network.
    """
    found, depth = set[str](), dict[str, int]()
    for node in nodes:
        names = [one.name or "" for one in node.inputs if one is not None]
        outputs = [one.name or "" for one in node.outputs]
        near = [depth[name] for name in names if name in depth]
        if id(node) in layers:
            depth[outputs[0]] = 0
            continue
        computed = [name for name in names if name not in held.raw]
        if node.op_type in SKIPS and near:
            found.add(next((name for name in reversed(outputs) if name), outputs[0]))
        elif node.op_type == "Add" and len(computed) == 2 and near:
            found.add(outputs[0])
        elif node.op_type in PASSED and near and (len(computed) == 1 or node.op_type == "Mul") and min(near) < BESIDE:
            depth[outputs[0]] = min(near) + 1
    return found
