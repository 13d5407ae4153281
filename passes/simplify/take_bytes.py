"""Let layers read and yield codes where ONNX nodes make floats of them, or codes of floats.

```mlir
%f = pebble.foreign "ai.onnx::DequantizeLinear" at 0 reads %x as ["x"] {pebble.codes = #a} : ... -> tensor<?x4xf32>
%q = pebble.convert %f : (tensor<?x4xf32>) -> tensor<?x4x!pebble.codes<#a>>
%y = pebble.linear %q, %w times %m : (...) -> tensor<?x2x!pebble.codes<#b>>
%g = pebble.convert %y : (tensor<?x2x!pebble.codes<#b>>) -> tensor<?x2xf32>
%r = pebble.foreign "ai.onnx::QuantizeLinear" at 3 reads %g as ["y"] {pebble.codes = #b} : ...
// ->
%r = pebble.linear %x, %w times %m : (tensor<?x4x!pebble.codes<#a>>, ...) -> tensor<?x2x!pebble.codes<#b>>
```

Codes are integers of eight bits that stand for values, scale * (code - zero). Dequantized and quantized again they are
what they were. Layers that do not round their result take the rounding behind them where no division comes before it. A
result that something else reads as floats stays floats.
"""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ...dialect.attributes.codes import CodesAttr, code_tensor, codes_in
from ...dialect.ops.elementwise import ConvertOp
from ...dialect.ops.foreign import CODES, ForeignOp, ForeignType
from ...dialect.ops.layers import LinearOp
from ...dialect.provenance import origin_of, set_provenance, value_name
from ...dialect.tensors import shape_of
from .fuse_codes import yield_codes

FROM_CODES: Final = "ai.onnx::DequantizeLinear"
TO_CODES: Final = "ai.onnx::QuantizeLinear"

KINDS: Final[dict[Attribute, str]] = {ForeignType("tensor(uint8)"): "u8", ForeignType("tensor(int8)"): "s8"}


@dataclass(frozen=True)
class TakeBytes(ModulePass):
    """Let layers read and yield codes."""

    name = "pebble-take-bytes"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in list(op.walk()):
            if isinstance(inner, ConvertOp) and inner.rounds:
                _read_bytes(inner)
            elif isinstance(inner, LinearOp) and inner.times is not None:
                _yield_bytes(inner)
        for func in op.ops:
            if isinstance(func, FuncOp):
                block = func.body.block
                results = [] if block.last_op is None else [value.type for value in block.last_op.operands]
                func.function_type = FunctionType.from_lists([value.type for value in block.args], results)


def _read_bytes(op: ConvertOp) -> None:
    """Let what reads codes read those that a node makes floats of."""
    node, codes = op.x.owner, op.codes
    if not isinstance(node, ForeignOp) or not _is_of(node, FROM_CODES, codes):
        return
    if not all(isinstance(use.operation, LinearOp) for use in op.result.uses):
        return  # images come as floats
    source, wanted = node.reads[0], code_tensor(codes, shape_of(op.x))
    if KINDS.get(source.type) == codes.kind:
        # nodes of ONNX take values of any type
        source = Rewriter.replace_value_with_new_type(source, wanted)
    if source.type == wanted:
        Rewriter.replace_op(op, [], [source])
        if not any(result.uses.get_length() for result in node.results):
            Rewriter.erase_op(node)


def _yield_bytes(op: LinearOp) -> None:
    """Let a layer yield what nodes make of its result."""
    reader = op.result.get_user_of_unique_use()
    back = reader if isinstance(reader, ConvertOp) and not reader.rounds else None
    floats = op.result if back is None else back.result
    readers = [use.operation for use in floats.uses]
    codes = None if not readers else _codes_behind(op, readers[0])
    nodes = [node for node in readers if isinstance(node, ForeignOp) and _is_of(node, TO_CODES, codes)]
    if codes is None or not nodes or len(nodes) < len(readers):
        return
    yield_codes(op, codes)
    set_provenance(op, origin_of(op if back is None else back), [value_name(nodes[0].outputs[0])])
    for node in nodes:
        node.outputs[0].replace_all_uses_with(op.result)
        Rewriter.erase_op(node)
    if back is not None:
        Rewriter.erase_op(back)


def _codes_behind(op: LinearOp, reader: Operation) -> CodesAttr | None:
    """Return the codes to which a reader rounds the result of a layer, if this can do so to the same bytes."""
    own, codes = codes_in(op.result.type), reader.attributes.get(CODES)
    if op.finds_codes or not isinstance(codes, CodesAttr):
        return None
    if own is not None:
        return codes if codes.rounding == own.rounding else None
    # sums are multiplied by what is divided by the scale, where an activation does not need them before
    return codes if codes.scale == 1.0 or not op.on_codes.rounds_sums else None


def _is_of(node: ForeignOp, operator: str, codes: CodesAttr | None) -> bool:
    """Return whether a node makes floats of these codes, or the other way round."""
    return node.operator.data == operator and len(node.reads) == 1 and node.attributes.get(CODES) == codes
