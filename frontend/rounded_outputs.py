"""Cuts what rounds outputs to codes off a module: its function returns the floats that are rounded.

```mlir
%q = pebble.foreign "ai.onnx::QuantizeLinear" at 4 reads %y as ["y_floats"] : ...
return %q          // -> return %y
```
"""

import onnx_ir
from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from ..dialect.ops.foreign import ForeignOp
from ..dialect.semantics.output_codes import OutputCodes
from ..dialect.tensors import is_f32_tensor
from .folding.known_constants import constant_array
from .import_model import Imported

ROUNDING = "ai.onnx::QuantizeLinear"


def cut_output_codes(imported: Imported) -> tuple[OutputCodes | None, ...]:
    """Return the codes that each output is rounded to, None for floats; empty where all are floats."""
    func = next(op for op in imported.module.body.block.ops if isinstance(op, FuncOp))
    end = func.body.block.last_op
    assert isinstance(end, ReturnOp)
    nodes = list(imported.model.graph)
    found: list[OutputCodes | None] = []
    for index, value in enumerate(list(end.operands)):
        codes = _codes(value, nodes, imported.model.ir_version)
        found.append(codes)
        if codes is not None:
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


def _codes(value: SSAValue, nodes: list[onnx_ir.Node], version: int) -> OutputCodes | None:
    """Return the codes of a node that rounds floats by one scale and zero that are given, else None."""
    op = value.owner
    if not isinstance(op, ForeignOp) or op.operator.data != ROUNDING or len(op.operands) != 1:
        return None
    node = nodes[op.position.value.data]
    given = [None if one is None else constant_array(one, version) for one in [*node.inputs, None][1:3]]
    scale, zero = given
    if not is_f32_tensor(op.operands[0].type) or scale is None or zero is None or not scale.size == zero.size == 1:
        return None
    if zero.dtype.name not in ("uint8", "int8"):
        return None
    return OutputCodes(zero.dtype.name, float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]))
