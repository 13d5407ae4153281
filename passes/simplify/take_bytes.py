"""Let quantized layers read and yield codes where ONNX nodes make floats of them, or codes of floats.

```mlir
%f = pebble.foreign "ai.onnx::DequantizeLinear" at 0 reads %x as ["x"] {pebble.codes = #a} : ... -> tensor<?x4xf32>
%y = pebble.quantized_layers %f, %w, %b, %m codes [#a, #b] ... : (tensor<?x4xf32>, ...) -> tensor<?x2xf32>
%q = pebble.foreign "ai.onnx::QuantizeLinear" at 3 reads %y as ["y"] {pebble.codes = #b} : ...
// ->
%q = pebble.quantized_layers %x, %w, %b, %m codes [#a, #b] ... : (tensor<?x4xui8>, ...) -> tensor<?x2xui8>
```

Codes that are dequantized and quantized again are what they were. Layers that do not round their result take the
rounding behind them where no division comes before it. A result that something else reads as floats stays floats.
"""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ...dialect.attributes.codes import CodesAttr
from ...dialect.ops.foreign import CODES, ForeignOp, ForeignType
from ...dialect.ops.quantized_layers import QuantizedLayersOp
from ...dialect.provenance import origin_of, set_provenance, value_name
from ...dialect.semantics.quantized import rounds_sums
from ...dialect.tensors import byte_kind, byte_tensor, shape_of

FROM_CODES: Final = "ai.onnx::DequantizeLinear"
TO_CODES: Final = "ai.onnx::QuantizeLinear"

KINDS: Final[dict[Attribute, str]] = {ForeignType("tensor(uint8)"): "u8", ForeignType("tensor(int8)"): "s8"}


@dataclass(frozen=True)
class TakeBytes(ModulePass):
    """Let quantized layers read and yield codes."""

    name = "pebble-take-bytes"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in list(op.walk()):
            if isinstance(inner, QuantizedLayersOp):
                _read_bytes(inner)
                _yield_bytes(inner)
        for func in op.ops:
            if isinstance(func, FuncOp):
                block = func.body.block
                results = [] if block.last_op is None else [value.type for value in block.last_op.operands]
                func.function_type = FunctionType.from_lists([value.type for value in block.args], results)


def _read_bytes(op: QuantizedLayersOp) -> None:
    """Let layers read what a node makes floats of."""
    node, codes = op.x.owner, op.codes.data[0]
    if not isinstance(node, ForeignOp) or not _is_of(node, FROM_CODES, codes):
        return
    source, kind = node.reads[0], codes.kind
    if byte_kind(source.type) is None and KINDS.get(source.type) == kind:
        # nodes of ONNX take values of any type
        source = Rewriter.replace_value_with_new_type(source, byte_tensor(kind, shape_of(op.x)))
    if byte_kind(source.type) == kind and shape_of(source) == shape_of(op.x):
        op.operands[0] = source
        _drop_unread(node)


def _yield_bytes(op: QuantizedLayersOp) -> None:
    """Let layers yield what nodes make of their results."""
    readers = [use.operation for use in op.result.uses]
    codes = op.output or _codes_behind(op)
    nodes = [node for node in readers if isinstance(node, ForeignOp) and _is_of(node, TO_CODES, codes)]
    if codes is None or op.yields_bytes or not nodes or len(nodes) < len(readers):
        return
    assert op.parent is not None
    made = QuantizedLayersOp(op.x, op.layers, codes, yields_bytes=True)
    op.parent.insert_op_before(made, op)
    set_provenance(made, origin_of(op), [value_name(nodes[0].outputs[0])])
    for node in nodes:
        node.outputs[0].replace_all_uses_with(made.result)
        Rewriter.erase_op(node)
    Rewriter.erase_op(op)


def _codes_behind(op: QuantizedLayersOp) -> CodesAttr | None:
    """Return the codes to which the first reader of layers rounds their result, if they can do so to the same bytes."""
    reader = next((use.operation for use in op.result.uses), None)
    codes = None if reader is None else reader.attributes.get(CODES)
    if op.is_dynamic or not isinstance(codes, CodesAttr):
        return None
    # sums are multiplied by what is divided by the scale, where an activation does not need them before
    return codes if codes.scale == 1.0 or not rounds_sums(op.layers[-1]) else None


def _is_of(node: ForeignOp, operator: str, codes: CodesAttr | None) -> bool:
    """Return whether a node makes floats of these codes, or the other way round."""
    return node.operator.data == operator and len(node.reads) == 1 and node.attributes.get(CODES) == codes


def _drop_unread(node: ForeignOp) -> None:
    if not any(result.uses.get_length() for result in node.results):
        Rewriter.erase_op(node)
