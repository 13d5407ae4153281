"""Quotients rounded to integers, by a division only where a product with the inverse does not tell."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from llvmlite import ir

from .flow import updated
from .values import Number
from .vectors import Lanes, Operand

HALVES: Final = 12582912.0
"""1.5 * 2^23: what is added to a float of up to 22 bits rounds it to an integer, which its last bits are then."""

UNSURE: Final = 0.4999
"""Distance from the nearest integer, of a product with the inverse of the scale, up to which the quotient has the same.

Product and quotient differ by less than 2^-22 of up to 256, that is 6.2e-5.
"""


def rounded_quotient(
    lanes: Lanes, values: ir.Value, scale: tuple[Operand, Operand], within: Callable[[ir.Value], ir.Value]
) -> ir.Value:
    """Return `HALVES` and the nearest integer to values / scale, ties to even, after `within` has bounded it to 256.

    `scale` are the scale and its inverse.
    """
    (rounded,) = rounded_quotients(lanes, [values], scale, within)
    return rounded


def rounded_quotients(
    lanes: Lanes, vectors: Sequence[ir.Value], scale: tuple[Operand, Operand], within: Callable[[ir.Value], ir.Value]
) -> list[ir.Value]:
    """Return the same of some vectors, which are divided where the product of one of them does not tell."""
    products = [within(lanes.mul(values, scale[1])) for values in vectors]
    rounded = [lanes.add(product, HALVES) for product in products]
    distances = (
        lanes.abs(lanes.sub(product, lanes.sub(one, HALVES))) for product, one in zip(products, rounded, strict=True)
    )
    unsure = lanes.compare(">", reduce(lanes.max, distances), UNSURE)
    is_any_unsure = Number(lanes.builder, lanes.builder.bitcast(unsure, ir.IntType(lanes.width))) != 0

    def exact() -> list[ir.Value]:
        return [lanes.add(within(lanes.div(values, scale[0])), HALVES) for values in vectors]

    return updated(is_any_unsure, rounded, exact, likely=False)
