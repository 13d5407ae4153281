"""Convolutions and dense products on codes that stay with the runtime have a rounding of their own, in place.

before: `f = DequantizeLinear(q, s, z)  y = Conv(f, w)`, and f becomes part of a network that yields floats
after:  `f = DequantizeLinear(q, s, z)  p = QuantizeLinear(f, s, z)  g = DequantizeLinear(p, s, z)  y = Conv(g, w)`

A runtime computes with codes where it sees both nodes. Where it makes f itself, it drops the pair.
"""

from collections.abc import Callable

import onnx_ir


def give_own_roundings(
    model: onnx_ir.Model,
    stays: Callable[[onnx_ir.Node], bool],
    is_dense: Callable[[onnx_ir.Model, onnx_ir.Node], bool],
) -> bool:
    """Insert the pairs before convolutions that stay, and dense products; return whether there were any."""
    known: dict[onnx_ir.Value, onnx_ir.Value] = {}
    staying = [node for node in model.graph if _is_convolution(node) and stays(node)]
    for node in [*staying, *(node for node in model.graph if is_dense(model, node))]:
        value = node.inputs[0]
        source = None if value is None else value.producer()
        if value is None or source is None or source.op_type != "DequantizeLinear" or source.inputs[0] is None:
            continue
        if source.inputs[0].producer() is None:
            continue
        if value not in known:
            known[value] = _repeated(model.graph, source, value)
        node.replace_input_with(0, known[value])
    return bool(known)


def _is_convolution(node: onnx_ir.Node) -> bool:
    return node.op_type == "Conv" and node.domain == ""


def _repeated(graph: onnx_ir.Graph, source: onnx_ir.Node, value: onnx_ir.Value) -> onnx_ir.Value:
    """Return what a value is after it was rounded again."""
    parameters, attributes = source.inputs[1:], list(source.attributes.values())
    quantize = onnx_ir.node("QuantizeLinear", [value, *parameters], name=f"{value.name}_again")
    dequantize = onnx_ir.Node(
        "", "DequantizeLinear", [quantize.outputs[0], *parameters], attributes, name=f"{value.name}_back"
    )
    codes, floats, before = quantize.outputs[0], dequantize.outputs[0], source.inputs[0]
    assert before is not None
    codes.name, codes.type, codes.shape = f"{value.name}_codes_again", before.type, value.shape
    floats.name, floats.type, floats.shape = f"{value.name}_floats_again", value.type, value.shape
    graph.insert_after(source, [quantize, dequantize])
    return floats
