"""Read arithmetic with scalar constants as a polynomial, so that one pattern covers all ways to write an expression.

`x * 0.5 * (1 + f)`, `(0.5 * x) * (f + 1)` and `0.5 * (x + x * f)` are the same polynomial 0.5 x + 0.5 x f of x and f.
"""

from collections.abc import Mapping
from math import isclose

from xdsl.ir import SSAValue

from ...dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, SubOp
from .per_feature_constants import single_entry

Monomial = tuple[SSAValue, ...]
"""Factors, in the order in which they were first met; () is the constant term."""

Polynomial = dict[Monomial, float]

LARGEST_LENGTH = 8
"""Terms of a polynomial; what has more is no expression that we look for."""

LARGEST_DEGREE = 4

DEEPEST = 16
"""Ops one inside the other; so each op is looked at no more often."""

CLOSE = 2e-5
"""Relative tolerance: constants are written with five digits (0.7071, 0.79788) and more."""


def polynomial_of(value: SSAValue) -> Polynomial | None:
    """Return what computes `value` as a polynomial, or None when it is too long.

    Values with several uses, and what other ops compute, are its variables; so all ops inside have one reader each.
    """
    return _expanded(value, [], 0)


def _expanded(value: SSAValue, variables: list[SSAValue], depth: int) -> Polynomial | None:
    constant = single_entry(value)
    if constant is not None:
        return {(): constant}
    match value.owner:
        case AddOp() as op:
            return _sum(_inner(op.left, variables, depth), _inner(op.right, variables, depth), 1.0)
        case SubOp() as op:
            return _sum(_inner(op.left, variables, depth), _inner(op.right, variables, depth), -1.0)
        case MulOp() as op:
            return _product(_inner(op.left, variables, depth), _inner(op.right, variables, depth), variables)
        case DivOp() as op:
            divisor = single_entry(op.right)
            if divisor:
                return _product(_inner(op.left, variables, depth), {(): 1.0 / divisor}, variables)
        case ActivateOp() as op if op.activation.kind == "square":
            base = _inner(op.x, variables, depth)
            return _product(base, base, variables)
        case _:
            pass
    return _variable(value, variables)


def _inner(value: SSAValue, variables: list[SSAValue], depth: int) -> Polynomial | None:
    if single_entry(value) is None and not value.has_one_use():
        return _variable(value, variables)
    return None if depth == DEEPEST else _expanded(value, variables, depth + 1)


def _variable(value: SSAValue, variables: list[SSAValue]) -> Polynomial:
    if value not in variables:
        variables.append(value)
    return {(value,): 1.0}


def _sum(left: Polynomial | None, right: Polynomial | None, sign: float) -> Polynomial | None:
    if left is None or right is None:
        return None
    total = dict(left)
    for monomial, coefficient in right.items():
        total[monomial] = total.get(monomial, 0.0) + sign * coefficient
    return total if len(total) <= LARGEST_LENGTH else None


def _product(left: Polynomial | None, right: Polynomial | None, variables: list[SSAValue]) -> Polynomial | None:
    if left is None or right is None or len(left) * len(right) > LARGEST_LENGTH:
        return None
    total: Polynomial = {}
    for first, first_coefficient in left.items():
        for second, second_coefficient in right.items():
            monomial = tuple(sorted(first + second, key=variables.index))
            if len(monomial) > LARGEST_DEGREE:
                return None
            total[monomial] = total.get(monomial, 0.0) + first_coefficient * second_coefficient
    return total


def is_close(polynomial: Polynomial | None, expected: Mapping[Monomial, float]) -> bool:
    """Return whether a polynomial has the expected terms, whatever the order of their factors."""
    if polynomial is None or len(polynomial) != len(expected):
        return False
    found = {_unordered(monomial): coefficient for monomial, coefficient in polynomial.items()}
    return all(
        isclose(found.get(_unordered(monomial), 0.0), coefficient, rel_tol=CLOSE)
        for monomial, coefficient in expected.items()
    )


def _unordered(monomial: Monomial) -> tuple[int, ...]:
    return tuple(sorted(id(factor) for factor in monomial))


def linear_factor(value: SSAValue, x: SSAValue) -> float | None:
    """Return c where `value` is c * x, else None."""
    polynomial = {(x,): 1.0} if value is x else polynomial_of(value)
    if polynomial is None or list(polynomial) != [(x,)]:
        return None
    return polynomial[(x,)]
