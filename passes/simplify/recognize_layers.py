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
norm over the last axis, with the scale and bias behind them, and batch norm of images, of sums, differences, products
and quotients with constants of channels. Operands may stand in any order, constants may be scalars
or one-element tensors; no value inside may have another reader.
"""

from collections.abc import Callable, Iterator
from math import inf, isclose, pi, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
)

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.constants import ConstantOp
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, DivOp, MulOp, PreluOp, SubOp
from ...dialect.ops.layers import BatchNormOp, LayerNormOp, ReduceMeanOp, RmsNormOp
from ...dialect.provenance import copy_provenance
from ...dialect.tensors import DYNAMIC, shape_of
from ..analysis.per_feature_constants import (
    Affine,
    affine_of_batch_norm,
    affine_of_channels,
    entries_per_feature,
    featurewise_operands,
    single_entry,
)
from ..analysis.polynomials import CLOSE, Polynomial, is_close, linear_factor, polynomial_of
from ..rewriting.erase_unused import erase_unused

# Normalisations that a model spells out: layer norm and rms norm over the last axis, with scale and bias.

IMAGE_RANK: Final = 4
NormOp = LayerNormOp | RmsNormOp
Floats = NDArray[np.float32]


def recognized_norm(op: Operation) -> list[Operation]:
    """Return the ops that replace the division that ends a spelled-out normalisation, the norm last; else nothing."""
    if not isinstance(op, DivOp | MulOp) or DYNAMIC in shape_of(op.result)[-1:]:
        return []
    for value, deviation in _quotients(op):
        epsilon, squared = _inside_root(deviation)
        if squared is None or value.type != op.result.type or not shape_of(value):
            continue
        scale = ConstantOp(np.ones(shape_of(value)[-1], dtype=np.float32))
        norm = _layer_norm(value, squared, scale, epsilon) or _rms_norm(value, squared, scale, epsilon)
        if norm is not None:
            return [scale, norm]
    return []


def _quotients(op: DivOp | MulOp) -> Iterator[tuple[SSAValue, SSAValue]]:
    """Yield what is divided and the root it is divided by; all but the divided value has one reader."""
    if isinstance(op, DivOp):
        yield op.left, op.right
        return
    for value, inverse in ((op.left, op.right), (op.right, op.left)):
        owner = inverse.owner
        if not inverse.has_one_use():
            continue
        if isinstance(owner, ActivateOp) and owner.activation.kind == "reciprocal":
            yield value, owner.x
        elif isinstance(owner, DivOp) and single_entry(owner.left) == 1.0:
            yield value, owner.right


def _inside_root(deviation: SSAValue) -> tuple[float, SSAValue | None]:
    """Return epsilon and v where `deviation` is `sqrt(mean(v^2) + epsilon)`, else None for v."""
    root = deviation.owner
    if not deviation.has_one_use() or not isinstance(root, ActivateOp) or root.activation.kind != "sqrt":
        return 0.0, None
    epsilon, mean = 0.0, root.x
    if isinstance(mean.owner, AddOp) and mean.has_one_use():
        total = mean.owner
        for side, other in ((total.left, total.right), (total.right, total.left)):
            constant = single_entry(side)
            if constant is not None:
                epsilon, mean = constant, other
    squares = mean.owner
    if not isinstance(squares, ReduceMeanOp) or not mean.has_one_use() or not squares.x.has_one_use():
        return 0.0, None
    return epsilon, _base_of_square(squares.x)


def _base_of_square(square: SSAValue) -> SSAValue | None:
    owner = square.owner
    if isinstance(owner, ActivateOp) and owner.activation.kind == "square":
        return owner.x
    if isinstance(owner, MulOp) and owner.left is owner.right:
        return owner.left
    return None


def _layer_norm(value: SSAValue, squared: SSAValue, scale: ConstantOp, epsilon: float) -> LayerNormOp | None:
    """Return the layer norm of x where `value` and `squared` are x - mean(x), both read by nothing else."""
    x, squared_x = _centred(value), _centred(squared)
    if x is None or squared_x is not x or not _only_inside(value, squared):
        return None
    return LayerNormOp(x, scale.result, None, epsilon)


def _rms_norm(value: SSAValue, squared: SSAValue, scale: ConstantOp, epsilon: float) -> RmsNormOp | None:
    return RmsNormOp(value, scale.result, epsilon) if value is squared else None


def _centred(value: SSAValue) -> SSAValue | None:
    """Return x where `value` is x - mean(x)."""
    owner = value.owner
    if not isinstance(owner, SubOp) or not isinstance(owner.right.owner, ReduceMeanOp):
        return None
    return owner.left if owner.right.owner.x is owner.left else None


def _only_inside(value: SSAValue, squared: SSAValue) -> bool:
    """Return whether only the square and the division read the centred value, or each its own copy of it."""
    readers = len({use.operation for use in value.uses})
    if value is squared:
        return readers == 2
    return readers == 1 and len({use.operation for use in squared.uses}) == 1


def norm_with_parameters(op: Operation) -> list[Operation]:
    """Return the norm, its new constant first, that takes the product or sum `op` behind it; else nothing."""
    if not isinstance(op, MulOp | AddOp):
        return []
    operands = featurewise_operands(op)
    if operands is None or not operands.value.has_one_use():
        return []
    norm = operands.value.owner
    old_scale = entries_per_feature(norm.scale) if isinstance(norm, LayerNormOp | RmsNormOp) else None
    if old_scale is None or not isinstance(norm, LayerNormOp | RmsNormOp):
        return []
    if isinstance(op, AddOp):
        return _with_sum(norm, operands.entries)
    return _with_product(norm, old_scale, operands.entries)


def _with_product(norm: NormOp, old_scale: Floats, factor: Floats) -> list[Operation]:
    if isinstance(norm, LayerNormOp) and norm.bias is not None:
        return []
    with np.errstate(all="ignore"):
        scale = ConstantOp(np.broadcast_to(old_scale * factor, shape_of(norm.x)[-1:]).astype(np.float32))
    if not np.isfinite(scale.array).all():
        return []
    epsilon = norm.epsilon.value.data
    if isinstance(norm, LayerNormOp):
        scaled = LayerNormOp(norm.x, scale.result, None, epsilon)
    else:
        scaled = RmsNormOp(norm.x, scale.result, epsilon)
    return [scale, scaled]


def _with_sum(norm: NormOp, summand: Floats) -> list[Operation]:
    if isinstance(norm, RmsNormOp) or norm.bias is not None:
        return []
    bias = ConstantOp(np.broadcast_to(summand, shape_of(norm.x)[-1:]).astype(np.float32))
    shifted = LayerNormOp(norm.x, norm.scale, bias.result, norm.epsilon.value.data)
    return [bias, shifted]


def recognized_batch_norm(op: Operation) -> list[Operation]:
    """Return the batch norm that `op` and the one before it are together, its parameters first; else nothing."""
    second = affine_of_channels(op) if isinstance(op, BinaryOp) and len(shape_of(op.result)) == IMAGE_RANK else None
    first = None if second is None or not second.source.has_one_use() else second.source.owner
    match first:
        case BatchNormOp():
            before = affine_of_batch_norm(first)
        case BinaryOp():
            before = affine_of_channels(first)
        case _:
            return []
    # two numbers for all channels are rather part of an activation
    is_spread = before is not None and (isinstance(first, BatchNormOp) or _varies(before) or _varies(second))
    if before is None or second is None or not is_spread:
        return []
    scale, shift = (
        ConstantOp(array.astype(np.float32))
        for array in (before.scale * second.scale, before.shift * second.scale + second.shift)
    )
    if not (np.isfinite(scale.array).all() and np.isfinite(shift.array).all()):
        return []
    zero, one = ConstantOp(np.zeros_like(scale.array)), ConstantOp(np.ones_like(scale.array))
    norm = BatchNormOp(before.source, (scale.result, shift.result, zero.result, one.result), 0.0)
    return [scale, shift, zero, one, norm]


def _varies(affine: Affine | None) -> bool:
    return affine is not None and any(np.any(array != array[:1]) for array in (affine.scale, affine.shift))


# Activations that a model spells out: gelu, silu, mish and hard swish as a product of x and a gate of x.

CUBIC = 0.044715
"""The coefficient of x^3 in gelu's approximation by tanh."""

Gated = Callable[[Polynomial, SSAValue, ActivateOp], ActivationAttr | None]
"""Returns the activation that a polynomial of x and a gate's result is, or None."""


def recognized_activation(op: Operation) -> ActivateOp | None:
    """Return the activation that `op` and the ops before it spell out, or None; no value inside has another reader."""
    if isinstance(op, PreluOp):
        return _leaky_relu(op)
    polynomial = polynomial_of(op.results[0])
    if polynomial is None:
        return None
    variables = {factor for monomial in polynomial for factor in monomial}
    if len(variables) != 2:
        return None
    for gate in variables:
        (x,) = variables - {gate}
        owner = gate.owner
        if not isinstance(owner, ActivateOp) or not gate.has_one_use() or x.type != op.results[0].type:
            continue
        pattern = GATES.get(owner.activation.kind)
        activation = pattern(polynomial, x, owner) if pattern is not None else None
        if activation is not None:
            return ActivateOp(x, activation)
    return None


def _leaky_relu(op: PreluOp) -> ActivateOp | None:
    """`prelu %x, c` with one slope for all values -> `activate <leaky_relu(c)> %x`."""
    slope = single_entry(op.right)
    if slope is None or op.left.type != op.result.type:
        return None
    return ActivateOp(op.left, ActivationAttr("leaky_relu", (slope,)))


def _gelu(polynomial: Polynomial, x: SSAValue, gate: ActivateOp) -> ActivationAttr | None:
    """0.5 x (1 + erf(x / sqrt(2)))."""
    factor = linear_factor(gate.x, x)
    if factor is None or not isclose(factor, sqrt(0.5), rel_tol=CLOSE):
        return None
    whole = is_close(polynomial, {(x,): 0.5, (x, gate.result): 0.5})
    return ActivationAttr("gelu") if whole else None


def _mish_or_gelu_tanh(polynomial: Polynomial, x: SSAValue, gate: ActivateOp) -> ActivationAttr | None:
    """x tanh(softplus(x)), or 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    inner = gate.x.owner
    if isinstance(inner, ActivateOp) and inner.activation.kind == "softplus":
        mish = inner.x is x and gate.x.has_one_use() and is_close(polynomial, {(x, gate.result): 1.0})
        return ActivationAttr("mish") if mish else None
    argument = polynomial_of(gate.x) if gate.x.has_one_use() else None
    factor = sqrt(2.0 / pi)
    if not is_close(argument, {(x,): factor, (x, x, x): factor * CUBIC}):
        return None
    whole = is_close(polynomial, {(x,): 0.5, (x, gate.result): 0.5})
    return ActivationAttr("gelu_tanh") if whole else None


def _silu(polynomial: Polynomial, x: SSAValue, gate: ActivateOp) -> ActivationAttr | None:
    """x sigmoid(alpha x)."""
    alpha = linear_factor(gate.x, x)
    if alpha is None or not is_close(polynomial, {(x, gate.result): 1.0}):
        return None
    return ActivationAttr("silu", (alpha,))


def _hard_swish(polynomial: Polynomial, x: SSAValue, gate: ActivateOp) -> ActivationAttr | None:
    """x clip(x + 3, 0, 6) / 6, or with clip(x / 6 + 0.5, 0, 1)."""
    low, high = gate.activation.values
    if low != 0.0 or high in (0.0, inf) or not gate.x.has_one_use():
        return None
    slope, offset = high / 6.0, high / 2.0
    inside = is_close(polynomial_of(gate.x), {(x,): slope, (): offset})
    whole = inside and is_close(polynomial, {(x, gate.result): 1.0 / high})
    return ActivationAttr("hard_swish") if whole else None


def _hard_swish_by_sigmoid(polynomial: Polynomial, x: SSAValue, gate: ActivateOp) -> ActivationAttr | None:
    """x hard_sigmoid(x) with slope 1/6 and offset 1/2."""
    alpha, beta = gate.activation.values
    fits = gate.x is x and isclose(alpha, 1.0 / 6.0, rel_tol=CLOSE) and isclose(beta, 0.5, rel_tol=CLOSE)
    return ActivationAttr("hard_swish") if fits and is_close(polynomial, {(x, gate.result): 1.0}) else None


GATES: Final[dict[str, Gated]] = {
    "clip": _hard_swish,
    "erf": _gelu,
    "hard_sigmoid": _hard_swish_by_sigmoid,
    "sigmoid": _silu,
    "tanh": _mish_or_gelu_tanh,
}
"""Kind of the gate -> the pattern that it may belong to."""


class RecognizeLayer(RewritePattern):
    """A product of x and a gate of x -> one activation; a division by the root of a mean of squares -> one norm.

    A norm then takes the constants behind it.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        activation = recognized_activation(op) if isinstance(op, BinaryOp) else None
        norm = recognized_norm(op) or norm_with_parameters(op) or recognized_batch_norm(op)
        found = norm if activation is None else [activation]
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
