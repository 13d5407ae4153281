"""Cuts what rounds or casts outputs off a module: its function returns the float32 values that are rounded.

```mlir
%q = pebble.foreign "ai.onnx::QuantizeLinear" at 4 reads %y as ["y_floats"] : ...
return %q          // -> return %y
```
"""

from typing import Final

import onnx_ir
from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from ..dialect.ops.foreign import ForeignOp
from ..dialect.semantics.output_forms import OutputCast, OutputCodes, OutputForm
from ..dialect.tensors import is_f32_tensor
from .folding.known_constants import constant_array
from .import_model import Imported

FLOATS: Final = {onnx_ir.DataType.FLOAT16: "float16", onnx_ir.DataType.DOUBLE: "float64"}
"""Types of floats that an output may be cast to -> their dtypes."""


def cut_output_forms(imported: Imported) -> tuple[OutputForm | None, ...]:
    """Return the codes or floats that each output becomes, None for float32; empty where all are."""
    func = next(op for op in imported.module.body.block.ops if isinstance(op, FuncOp))
    end = func.body.block.last_op
    assert isinstance(end, ReturnOp)
    nodes = list(imported.model.graph)
    found: list[OutputForm | None] = []
    for index, value in enumerate(list(end.operands)):
        form = _form(value, nodes, imported.model.ir_version)
        found.append(form)
        if form is not None:
            op = value.owner
            assert isinstance(op, ForeignOp)
            end.operands[index] = op.operands[0]
            if not any(result.uses.get_length() for result in op.results):
                op.detach()
                op.erase()
    if not any(found):
        return ()
    results = [value.type for value in end.operands]
    func.function_type = FunctionType.from_lists(list(func.function_type.inputs), results)
    return tuple(found)


def _form(value: SSAValue, nodes: list[onnx_ir.Node], version: int) -> OutputForm | None:
    """Return what a node makes of float32: codes by one constant scale and zero, or other floats; else None."""
    op = value.owner
    if not isinstance(op, ForeignOp) or len(op.operands) != 1 or not is_f32_tensor(op.operands[0].type):
        return None
    node = nodes[op.position.value.data]
    match op.operator.data:
        case "ai.onnx::QuantizeLinear":
            return _codes(node, version)
        case "ai.onnx::Cast":
            target = FLOATS.get(onnx_ir.DataType(node.attributes["to"].as_int()))
            return None if target is None else OutputCast(target)
        case _:
            return None


def _codes(node: onnx_ir.Node, version: int) -> OutputCodes | None:
    given = [None if one is None else constant_array(one, version) for one in [*node.inputs, None][1:3]]
    scale, zero = given
    if scale is None or zero is None or not scale.size == zero.size == 1:
        return None
    if zero.dtype.name not in ("uint8", "int8"):
        return None
    return OutputCodes(zero.dtype.name, float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]))
