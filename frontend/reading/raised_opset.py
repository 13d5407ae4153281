"""Opsets before that of functions with sparse networks, raised where every node can say in the later one what it means.

Most operators have only got more types or attributes since. Those whose attributes became inputs are written anew:

```
Clip <min = 0, max = 6> (x)  ->  Clip (x, Constant <0>, Constant <6>)
```
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from .model_checks import OLDEST_OPSET

RAISED: Final = 11
"""The opset that is raised to."""

Write = Callable[[ir.Node], str]
"""Writes a node anew in place, or says why it cannot, and leaves it."""


def raising_obstacle(model: ir.Model) -> str:
    """Return why a model of an older opset cannot be raised to the one of `RAISED`; empty where it can."""
    opset = model.opset_imports.get("", RAISED)
    if opset >= RAISED:
        return ""
    if opset < OLDEST_OPSET:
        return f"expected {OLDEST_OPSET} or later"
    return "the model has functions of its own" if model.functions else raise_opset(model.clone())


def raise_opset(model: ir.Model) -> str:
    """Raise the opset of a model without functions in place, or return why not: then it may be raised in part."""
    opset = model.opset_imports.get("", RAISED)
    if opset >= RAISED:
        return ""
    for node in [node for node in model.graph.all_nodes() if node.domain in ("", "ai.onnx")]:
        write = WRITTEN_ANEW.get(node.op_type)
        try:
            old, new = (onnx.defs.get_schema(node.op_type, version) for version in (opset, RAISED))
        except onnx.defs.SchemaError:
            return f"nothing is known of {_named(node)}"
        if old.since_version == new.since_version:
            continue
        refusal = write(node) if write is not None else ""
        if refusal or not _means_the_same(
            node, old, onnx.defs.get_schema(node.op_type, RAISED), is_new=write is not None
        ):
            return refusal or f"{_named(node)} has no such form there"
    model.opset_imports[""] = RAISED
    return ""


def _means_the_same(node: ir.Node, old: onnx.defs.OpSchema, new: onnx.defs.OpSchema, *, is_new: bool) -> bool:
    """Return whether a node has a form in a later opset: no attribute, input or type of an output went or moved."""
    if new.deprecated or not {*node.attributes} <= {*new.attributes}:
        return False
    if is_new:
        return True
    inputs = zip(node.inputs, old.inputs, new.inputs, strict=False)
    outputs = zip(node.outputs, old.outputs, new.outputs, strict=False)
    return all(before.name == after.name for value, before, after in inputs if value is not None) and all(
        before.type_str == after.type_str for value, before, after in outputs if value.uses() or value.is_graph_output()
    )


def _named(node: ir.Node) -> str:
    return f"node {node.name or node.outputs[0].name}: operator {node.op_type}"


def _constant(node: ir.Node, array: NDArray[np.float32 | np.int64]) -> ir.Value:
    """Return a constant that stands before a node."""
    made = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(array))], num_outputs=1)
    assert node.graph is not None
    node.graph.insert_before(node, made)
    return made.outputs[0]


def _put_inputs(node: ir.Node, inputs: list[ir.Value | None]) -> None:
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)


def _write_inputs(names: Sequence[str], node: ir.Node) -> str:
    """Make inputs of attributes, those at the end that are not stated left out."""
    inputs: list[ir.Value | None] = [node.inputs[0]]
    for name in names:
        found = node.attributes.pop(name, None)
        kind = (
            np.float32
            if found is not None and found.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS)
            else np.int64
        )
        inputs.append(None if found is None else _constant(node, np.array(found.value, kind)))
    while inputs[-1] is None:
        inputs.pop()
    _put_inputs(node, inputs)
    return ""


def _write_slice(node: ir.Node) -> str:
    # they are inputs since opset 10
    return _write_inputs(("starts", "ends", "axes"), node) if "starts" in node.attributes else ""


def _write_top(node: ir.Node) -> str:
    if "k" in node.attributes:
        count = node.attributes.pop("k").as_int()
        _put_inputs(node, [node.inputs[0], _constant(node, np.array([count], np.int64))])
    return ""


def _write_scatter(node: ir.Node) -> str:
    node.op_type = "ScatterElements"
    return ""


def _write_batch_norm(node: ir.Node) -> str:
    spatial = node.attributes.pop("spatial", None)
    return "" if spatial is None or spatial.as_int() == 1 else f"{_named(node)} has a mean of each pixel"


def _write_resize(node: ir.Node) -> str:
    """Write what makes images larger as onnxruntime does it in older opsets."""
    if "scales" in node.attributes:
        scales = np.array(node.attributes.pop("scales").as_floats(), np.float32)
    else:
        value = node.inputs[1]
        tensor = None if value is None or value.is_graph_input() else ir.convenience.get_const_tensor(value)
        if tensor is None:
            return f"{_named(node)} computes its scales"
        scales = tensor.numpy().astype(np.float32)
    if np.any(scales < 1):
        return f"{_named(node)} makes images smaller, which is defined otherwise there"
    nothing = _constant(node, np.zeros(0, np.float32))
    _put_inputs(node, [node.inputs[0], nothing, _constant(node, scales)])
    node.op_type = "Resize"
    node.attributes["coordinate_transformation_mode"] = ir.AttrString("coordinate_transformation_mode", "asymmetric")
    node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", "floor")
    return ""


WRITTEN_ANEW: Final[Mapping[str, Write]] = {
    "BatchNormalization": _write_batch_norm,
    "Clip": partial(_write_inputs, ("min", "max")),
    "Pad": partial(_write_inputs, ("pads", "value")),
    "Resize": _write_resize,
    "Scatter": _write_scatter,
    "Slice": _write_slice,
    "TopK": _write_top,
    "Upsample": _write_resize,
}
"""Operators whose form has changed."""
