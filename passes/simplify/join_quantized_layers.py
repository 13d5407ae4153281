"""Join quantized layers that follow each other, with what is between them: bytes pass from one to the next.

```mlir
%h = pebble.quantized_layers %x, %w, %b, %m codes [#a] activations [unit] ... : ...
%r = pebble.activate <relu> %h : ...
%y = pebble.quantized_layers %r, %v, %c, %n codes [#d] activations [unit] ... : ...
// ->
%y = pebble.quantized_layers %x, %w, %b, %m, %v, %c, %n codes [#a, #d] activations [#pebble.activation<relu>, unit] ...
```

A value that something else reads, too, stays.
"""

from dataclasses import dataclass

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from redpebble.dialect.ops.elementwise import ActivateOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayersOp
from redpebble.dialect.provenance import copy_provenance


@dataclass(frozen=True)
class JoinQuantizedLayers(ModulePass):
    """Join quantized layers and activations that follow each other."""

    name = "pebble-join-quantized-layers"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        join_layers(op)


def join_layers(module: ModuleOp) -> None:
    """Join all quantized layers of a module that follow each other."""
    for op in list(module.walk()):
        if isinstance(op, ActivateOp | QuantizedLayersOp):
            _join(op)


def _join(op: ActivateOp | QuantizedLayersOp) -> None:
    """Let an op and the layers before it become one op, where that computes the same."""
    before = _only_reader(op.x)
    if before is None:
        return
    *first, last = before.layers
    if isinstance(op, QuantizedLayersOp):
        joined = QuantizedLayersOp(before.x, [*before.layers, *op.layers], op.output)
    elif last.activation is None:
        joined = QuantizedLayersOp(before.x, [*first, last._replace(activation=op.activation)])
    else:
        return
    _replace(op, joined, before)


def _only_reader(value: SSAValue) -> QuantizedLayersOp | None:
    """Return the quantized layers that yield a value for one reader, and do not round it."""
    owner = value.owner
    if not isinstance(owner, QuantizedLayersOp) or owner.output is not None or not value.has_one_use():
        return None
    return owner


def _replace(op: Operation, joined: QuantizedLayersOp, before: QuantizedLayersOp) -> None:
    block = op.parent
    assert block is not None
    block.insert_op_before(joined, op)
    copy_provenance(op, joined)
    joined.result.name_hint = op.results[0].name_hint
    op.results[0].replace_all_uses_with(joined.result)
    for one in (op, before):
        one.detach()
        one.erase()
