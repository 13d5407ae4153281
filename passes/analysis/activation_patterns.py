"""Activations that a model spells out: gelu, silu, mish and hard swish as a product of x and a gate of x."""

from collections.abc import Callable
from math import inf, isclose, pi, sqrt
from typing import Final

from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.elementwise import ActivateOp, PreluOp
from .per_feature_constants import single_entry
from .polynomials import CLOSE, Polynomial, is_close, linear_factor, polynomial_of

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
