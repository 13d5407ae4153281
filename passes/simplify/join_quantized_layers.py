"""Join quantized layers that follow each other, with what is between them: bytes pass from one to the next.

```mlir
%h = pebble.quantized_layers %x, %w, %b, %m codes [#a] activations [unit] ... : ...
%r = pebble.activate <relu> %h : ...
%y = pebble.quantized_layers %r, %v, %c, %n codes [#d] activations [unit] ... : ...
// ->
%y = pebble.quantized_layers %x, %w, %b, %m, %v, %c, %n codes [#a, #d] activations [#pebble.activation<relu>, unit] ...
```

Sums with constants belong to layers whose codes are found at each call: no others add floats. What is rounded to codes
behind a layer is a rounded layer, and rounded once for all that read it. A value that something else reads, too, stays.
"""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.codes import CodesAttr
from ...dialect.ops.constants import ConstantOp, constant_array
from ...dialect.ops.elementwise import ActivateOp, AddOp
from ...dialect.ops.quantized_layers import QuantizedLayersOp
from ..analysis.per_feature_constants import featurewise_operands
from ..rewriting.replacing import replace


@dataclass(frozen=True)
class JoinQuantizedLayers(ModulePass):
    """Join quantized layers and activations that follow each other."""

    name = "pebble-join-quantized-layers"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        join_layers(op)


def join_layers(module: ModuleOp) -> None:
    """Join all quantized layers of a module that follow each other."""
    _merge_roundings(module)
    for op in list(module.walk()):
        match op:
            case AddOp():
                _join_addend(op)
            case ActivateOp() | QuantizedLayersOp():
                _join(op)
            case _:
                continue


def _merge_roundings(module: ModuleOp) -> None:
    """Let values that are rounded to the same codes several times, once for each reader, be so once."""
    known: dict[tuple[SSAValue, ActivationAttr], ActivateOp] = {}
    for op in [op for op in module.walk() if isinstance(op, ActivateOp)]:
        first = known.setdefault((op.x, op.activation), op)
        if first is not op and op.activation.kind == "quantize" and first.parent is op.parent:
            Rewriter.replace_op(op, [], [first.result])


def _join(op: ActivateOp | QuantizedLayersOp) -> None:
    """Let an op and the layers before it become one op, where that computes the same."""
    before = _only_reader(op.x)
    if before is None:
        return
    *first, last = before.layers
    match op:
        case QuantizedLayersOp():
            fits = not (before.is_dynamic or op.is_dynamic)
            joined = QuantizedLayersOp(before.x, [*before.layers, *op.layers], op.output) if fits else None
        case ActivateOp() if op.activation.kind == "quantize":
            scale, zero = op.activation.values
            codes = CodesAttr("u8", scale, int(zero))
            joined = None if before.is_dynamic else QuantizedLayersOp(before.x, before.layers, codes)
        case _:
            layers = [*first, last._replace(activation=op.activation)]
            joined = QuantizedLayersOp(before.x, layers) if last.activation is None else None
    if joined is not None:
        replace(op, joined)
        Rewriter.erase_op(before)


def _join_addend(op: AddOp) -> None:
    """Let a layer with dynamic codes take a constant that is added to each of its outputs."""
    found = featurewise_operands(op)
    before = None if found is None else _only_reader(found.value)
    if found is None or before is None or not before.is_dynamic or before.layers[0].activation is not None:
        return
    (layer,) = before.layers
    bias = constant_array(layer.bias)
    assert bias is not None
    total = ConstantOp((bias + found.entries).astype(np.float32))
    Rewriter.insert_op(total, InsertPoint.before(op))
    replace(op, QuantizedLayersOp(before.x, [layer._replace(bias=total.result)]))
    Rewriter.erase_op(before)


def _only_reader(value: SSAValue) -> QuantizedLayersOp | None:
    """Return the quantized layers that yield a value for one reader, and do not round it."""
    owner = value.owner
    if not isinstance(owner, QuantizedLayersOp) or owner.output is not None or not value.has_one_use():
        return None
    return owner
