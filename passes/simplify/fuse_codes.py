"""Let layers on codes take the activation and the rounding behind them: bytes pass from one to the next.

```mlir
%h = pebble.linear %q, %w bias %b times %m : (tensor<?x4x!pebble.codes<#a>>, ...) -> tensor<?x3xf32>
%r = pebble.activate <relu> %h : ...
%p = pebble.convert %r : (tensor<?x3xf32>) -> tensor<?x3x!pebble.codes<#b>>
// ->
%p = pebble.linear %q, %w bias %b times %m activation <relu> : (...) -> tensor<?x3x!pebble.codes<#b>>
```

Codes are integers of eight bits that stand for values: value = scale * (code - zero). So do convolutions on them.
Floats that are rounded behind a layer are floats of the codes that it yields, and rounded once for all that read them.
A clip that ends where codes end is not computed. Sums with constants belong to layers whose codes are found at each
call: no others add floats. A value that something else reads, too, stays.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.codes import CodesAttr, code_tensor, codes_in
from ...dialect.ops.constants import constant_array
from ...dialect.ops.elementwise import ActivateOp, AddOp, ConvertOp, rounds_to_codes
from ...dialect.ops.images import Conv2dOp, spreads_of
from ...dialect.ops.layers import LinearOp
from ...dialect.tensors import shape_of
from ..analysis.per_feature_constants import featurewise_operands
from ..rewriting.parameters import set_bias
from ..rewriting.replacing import absorb, replace

Layered = LinearOp | Conv2dOp


@dataclass(frozen=True)
class FuseCodes(ModulePass):
    """Fold activations and roundings into layers on codes."""

    name = "pebble-fuse-codes"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        fuse_codes(op)


def fuse_codes(module: ModuleOp) -> None:
    """Let all layers on codes of a module take what is behind them."""
    _merge_roundings(module)
    for op in list(module.walk()):
        layer = _layer_before(op)
        if layer is not None:
            _take(op, layer)


def _take(op: Operation, layer: Layered) -> None:
    """Let a layer compute what an op behind it does, where that computes the same."""
    match op:
        case AddOp():
            _take_addend(op, layer)
        case ConvertOp() if not layer.finds_codes:
            _round(layer, op.codes)
            absorb(op, layer)
        case ActivateOp() if rounds_to_codes(op):
            if not layer.finds_codes:
                scale, zero = op.activation.values
                _round(layer, CodesAttr("u8", scale, int(zero)))
                replace(op, ConvertOp(layer.result))
        case ActivateOp() if layer.activation is None:
            layer.activation = op.activation
            absorb(op, layer)
        case _:
            pass


def _round(layer: Layered, codes: CodesAttr) -> None:
    """Let a layer round its result to codes, which may end where a clip does."""
    if layer.activation is not None and _ends_at_codes(layer.activation, codes):
        del layer.properties["activation"]
    yield_codes(layer, codes)


def _ends_at_codes(activation: ActivationAttr, codes: CodesAttr) -> bool:
    """Return whether an activation cuts what has the first or the last code anyway, and leaves all else."""
    if activation.kind != "clip":
        return False
    ends = np.array(activation.values, np.float32) / np.float32(codes.scale)
    return [int(step) + codes.zero for step in codes.steps(ends)] == [codes.least, codes.greatest]


def yield_codes(layer: Layered, codes: CodesAttr) -> None:
    """Let a layer yield codes."""
    Rewriter.replace_value_with_new_type(layer.result, code_tensor(codes, shape_of(layer.result)))


def _merge_roundings(module: ModuleOp) -> None:
    """Let values that are rounded to the same codes several times, once for each reader, be so once."""
    known: dict[tuple[SSAValue, ActivationAttr], ActivateOp] = {}
    for op in [op for op in module.walk() if isinstance(op, ActivateOp)]:
        first = known.setdefault((op.x, op.activation), op)
        if first is not op and rounds_to_codes(op) and first.parent is op.parent:
            Rewriter.replace_op(op, [], [first.result])


def _layer_before(op: Operation) -> Layered | None:
    """Return the layer on codes whose floats an op alone reads."""
    for value in op.operands:
        layer = value.owner
        if isinstance(layer, Layered) and layer.times is not None and codes_in(value.type) is None:
            return layer if value.has_one_use() else None
    return None


def _take_addend(op: AddOp, layer: Layered) -> None:
    """Let a layer that finds its codes take a constant that is added to each of its outputs."""
    entries = _addend(op, layer) if layer.finds_codes and layer.activation is None else None
    if entries is not None:
        set_bias(layer, layer.on_codes.added.astype(np.float64) + entries)
        absorb(op, layer)


def _addend(op: AddOp, layer: Layered) -> NDArray[np.float32] | None:
    """Return the constant for each output of a layer, or None where something else is added."""
    if isinstance(layer, LinearOp):
        found = featurewise_operands(op)
        return found.entries if found is not None and found.value is layer.result else None
    added = constant_array(op.right if op.left is layer.result else op.left)
    # after a second sum, results are rounded twice
    if added is None or np.any(layer.on_codes.added) or spreads_of(op) is None:
        return None
    return added.reshape(-1)
