"""Recognize layers that a model spells out op by op.

```mlir
%a = pebble.div %x, %sqrt2 : ...
%b = pebble.activate <erf> %a : ...
%c = pebble.add %b, %one : ...
%d = pebble.mul %x, %c : ...
%y = pebble.mul %d, %half : ...
// ->
%y = pebble.activate <gelu> %x : ...
```

Activations: gelu (erf and tanh), silu, mish, hard swish, and prelu with one slope. Normalisations: layer norm and rms
norm over the last axis, with the scale and bias behind them. Operands may stand in any order, constants may be scalars
or one-element tensors; no value inside may have another reader.
"""

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
)

from ...dialect.ops.elementwise import BinaryOp
from ...dialect.provenance import copy_provenance
from ..analysis.activation_patterns import recognized_activation
from ..analysis.norm_patterns import norm_with_parameters, recognized_norm
from ..rewriting.erase_unused import erase_unused


class RecognizeLayer(RewritePattern):
    """A product of x and a gate of x -> one activation; a division by the root of a mean of squares -> one norm.

    A norm then takes the constants behind it.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        activation = recognized_activation(op) if isinstance(op, BinaryOp) else None
        found = recognized_norm(op) or norm_with_parameters(op) if activation is None else [activation]
        if found:
            copy_provenance(op, found[-1])
            rewriter.replace(op, found)


class RecognizeLayers(ModulePass):
    """Replace spelled-out activations and normalisations by one op each."""

    name = "pebble-recognize-layers"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        # the applier drops what became dead after each match, so that later matches count true readers only
        patterns = GreedyRewritePatternApplier([RecognizeLayer()], ctx=ctx)
        PatternRewriteWalker(patterns).rewrite_module(op)
        erase_unused(op.body)
