"""Compute layers on codes with kernels of floats, where their sums are exact: what floats can do is theirs then.

```mlir
%q = pebble.convert %x : (tensor<?x4xf32>) -> tensor<?x4x!pebble.codes<#a>>
%h = pebble.linear %q, %w bias %b times %m activation <relu> : ... -> tensor<?x3x!pebble.codes<#b>>
%y = pebble.convert %h : (tensor<?x3x!pebble.codes<#b>>) -> tensor<?x3xf32>
// ->
%d = pebble.div %x, %scale : ...
%q = pebble.activate <quantize(1.0, 128.0)> %d : ...
%s = pebble.linear %q, %w bias %b : ...
%t = pebble.mul %s, %m_by_scale : ...
%r = pebble.activate <quantize(1.0, 3.0)> %t : ...
%h = pebble.activate <relu> %r : ...
%y = pebble.mul %h, %scale : ...
```

Codes are integers of eight bits that stand for values, scale * (code - zero); here a code is the float code - zero.
Floats hold all integers up to 2^24: layers whose sums may be greater stay, and so do chains that read or yield codes.
Results are the same, bit for bit. Components are made of layers of floats alone.
"""

from collections.abc import Iterator

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.codes import CodesAttr, codes_in
from ...dialect.ops.constants import ConstantOp, constant_array, constant_matrix
from ...dialect.ops.elementwise import ActivateOp, ConvertOp, DivOp, MulOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.quantized_layers import GREATEST_BIAS, QuantizedLayer
from ...dialect.ops.tile_chain import CodeChain, code_chains
from ...dialect.provenance import origin_of, set_provenance
from ..analysis.weights import Floats
from ..rewriting.erase_unused import erase_unused
from ..rewriting.replacing import take_names

MOST_STEPS = 255
"""The greatest difference of a code and the zero."""


class ComputeCodesAsFloats(ModulePass):
    """Let layers of floats take the place of those on codes."""

    name = "pebble-compute-codes-as-floats"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for chain in code_chains(op.walk()):
            in_function = isinstance(chain.ops[0].parent_op(), FuncOp)
            if in_function and not (chain.reads_bytes or chain.yields_bytes or chain.is_dynamic) and _is_exact(chain):
                _replace(chain)
        erase_unused(op.body)


def _is_exact(chain: CodeChain) -> bool:
    """Return whether the sums of all layers are integers that floats hold."""
    return all(_greatest_sum(layer) <= GREATEST_BIAS for layer in chain.layers)


def _greatest_sum(layer: QuantizedLayer) -> float:
    weight = constant_matrix(layer.weight)
    assert weight is not None
    sums = np.bincount(weight.columns, np.abs(weight.values), weight.shape[1])
    return float((MOST_STEPS * sums + np.abs(layer.added)).max(initial=0.0))


def _replace(chain: CodeChain) -> None:
    value = chain.x
    for op in chain.ops:
        made = list(_convert(op, value) if isinstance(op, ConvertOp) else _linear(op, value))
        take_names(made[-1], op)
        Rewriter.insert_op(made, InsertPoint.before(op))
        (value,) = made[-1].results
    Rewriter.replace_op(chain.ops[-1], [], [value])
    for op in reversed(chain.ops[:-1]):
        Rewriter.erase_op(op)


def _convert(op: Operation, x: SSAValue) -> Iterator[Operation]:
    assert isinstance(op, ConvertOp)
    scale = ConstantOp(_number(op.codes.scale))
    yield scale
    if not op.rounds:
        yield MulOp(x, scale.result)
        return
    multiples = DivOp(x, scale.result)
    yield multiples
    yield _rounded(multiples.result, op.codes)


def _linear(op: Operation, x: SSAValue) -> Iterator[Operation]:
    """Yield a layer of floats, and what makes steps of codes, or the result, of its sums."""
    assert isinstance(op, LinearOp)
    layer, codes, activation = op.on_codes, codes_in(op.result.type), op.activation
    sums, multiplier = LinearOp(x, op.weight, op.bias), constant_array(layer.multiplier)
    assert multiplier is not None
    set_provenance(sums, origin_of(op), [])
    in_steps = codes is not None and layer.rounds_sums
    factor = ConstantOp(multiplier / np.float32(codes.scale) if in_steps and codes is not None else multiplier)
    made = MulOp(sums.result, factor.result)
    yield from (sums, factor, made)
    if in_steps and codes is not None:
        rounded = _rounded(made.result, codes)
        yield rounded
        if activation is not None:
            yield ActivateOp(rounded.result, activation)
        return
    value = made.result
    if activation is not None:
        activated = ActivateOp(value, activation)
        yield activated
        value = activated.result
    if codes is not None:
        scale = ConstantOp(_number(codes.scale))
        multiples = DivOp(value, scale.result)
        yield from (scale, multiples, _rounded(multiples.result, codes))


def _rounded(multiples: SSAValue, codes: CodesAttr) -> ActivateOp:
    return ActivateOp(multiples, ActivationAttr("quantize", (1.0, codes.unsigned_zero)))


def _number(value: float) -> Floats:
    return np.array([value], np.float32)
