"""An If whose condition is known becomes the nodes of its branch.

before: `y = If(false) <then: a, else: b>`    after: `b`, whose results take the place of `y`
"""

import onnx_ir

from .known_constants import constant_array


def fold_branches(model: onnx_ir.Model) -> bool:
    """Replace, in place, each If of a known condition by its branch; return whether there were any."""
    folded = False
    for node in list(model.graph):
        if (node.domain, node.op_type) != ("", "If") or any(value.is_graph_output() for value in node.outputs):
            continue
        condition = None if node.inputs[0] is None else constant_array(node.inputs[0], model.ir_version)
        if condition is not None and condition.size == 1:
            name = "then_branch" if condition.reshape(-1)[0] else "else_branch"
            folded |= _replace(model.graph, node, node.attributes[name].as_graph())
    return folded


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
        _make_limits_scalars(graph, node, old, new)
        old.replace_all_uses_with(new)
    graph.remove(node, safe=True)
    return True


def _make_limits_scalars(graph: onnx_ir.Graph, node: onnx_ir.Node, old: onnx_ir.Value, new: onnx_ir.Value) -> None:
    """Let each Range that reads the value of an If read the one element of what takes its place.

    A Range takes the one element of a vector in a call, where onnxruntime refuses a vector that it knows beforehand.
    """
    limits = [use for use in old.uses() if use.node.op_type == "Range"]
    if not limits:
        return
    scalar = onnx_ir.node("Squeeze", [new], version=node.version)
    scalar.outputs[0].name = f"{new.name}/scalar"
    graph.insert_before(node, [scalar])
    for use in limits:
        use.node.replace_input_with(use.idx, scalar.outputs[0])
