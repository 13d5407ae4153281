"""Quotients rounded to integers, by a division only where a product with the inverse does not tell."""

from collections.abc import Callable
from typing import Final

from llvmlite import ir

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
    builder = lanes.builder
    product = within(lanes.mul(values, scale[1]))
    rounded = lanes.add(product, HALVES)
    distance = lanes.abs(lanes.sub(product, lanes.sub(rounded, HALVES)))
    unsure = lanes.compare(">", distance, UNSURE)
    bits = builder.bitcast(unsure, ir.IntType(lanes.width))
    before = builder.block
    with builder.if_then(builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), likely=False):
        exact, inside = lanes.add(within(lanes.div(values, scale[0])), HALVES), builder.block
    result = builder.phi(rounded.type)
    result.add_incoming(rounded, before)
    result.add_incoming(exact, inside)
    return result
