"""An If whose condition is known becomes the nodes of its branch.

before: `y = If(false) <then: a, else: b>`    after: `b`, whose results take the place of `y`
"""

import onnx_ir

from redpebble.frontend.folding.known_constants import constant_array


def fold_branches(model: onnx_ir.Model) -> bool:
    """Replace, in place, each If of a known condition by its branch; return whether there were any."""
    folded = False
    for node in list(model.graph):
        if (node.domain, node.op_type) != ("", "If") or any(map(_is_needed, node.outputs)):
            continue
        condition = None if node.inputs[0] is None else constant_array(node.inputs[0], model.ir_version)
        if condition is not None and condition.size == 1:
            name = "then_branch" if condition.reshape(-1)[0] else "else_branch"
            folded |= _replace(model.graph, node, node.attributes[name].as_graph())
    return folded


def _is_needed(value: onnx_ir.Value) -> bool:
    """Return whether the value has to be that of an If.

    A Range takes the one element of a vector in a call, where onnxruntime refuses a vector that it knows beforehand.
    """
    return value.is_graph_output() or any(use.node.op_type == "Range" for use in value.uses())


def _replace(graph: onnx_ir.Graph, node: onnx_ir.Node, branch: onnx_ir.Graph) -> bool:
    """Put the nodes of a branch in the place of a node; return False where a result is none of its values."""
    outputs = list(branch.outputs)
    inside = list(branch)
    if branch.initializers or any(value.producer() not in inside for value in outputs):
        return False
    branch.outputs.clear()
    branch.remove(inside)
    for one in inside:
        for value in one.outputs:
            # names of a branch may be those of the other one, or of another If
            value.name = f"{node.name}/{value.name}"
    graph.insert_before(node, inside)
    for old, new in zip(node.outputs, outputs, strict=True):
        old.replace_all_uses_with(new)
    graph.remove(node, safe=True)
    return True
