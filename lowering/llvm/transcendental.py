"""exp, log, tanh, erf and what is made of them, on vectors of floats: branch-free, without tables and without libm.

The same source serves every width and target; where there is no fused multiply-add the errors stated here still hold.
One ulp is the distance between neighbouring floats at the true value. Infinities, zeros, denormals and NaN give what
the functions' limits say, with gradual underflow.

Registers of `exp`, one value a lane; the other functions are made of the same steps:

    shifted  x log2(e) + 1.5 * 2^23        fma; its low bits are the whole number n
    n        bits(shifted) - bits(1.5 * 2^23)   integer subtraction
    r        x - n ln(2)                   two fma, ln(2) in two parts
    p        e^r - 1                       six fma, Horner's rule
    2^n      (n + 127) << 23               integer addition and shift, read as a float
    result   (p + 1) 2^(n/2) 2^(n - n/2)   two multiplications

The polynomials minimise the largest relative error of the function they stand for (Remez exchange on 800 Chebyshev
points, 40 digits); each coefficient in turn, lowest power first, was rounded to a float and the rest fitted again.
"""

from typing import Final

from llvmlite import ir

from .vectors import Lanes

LOG2_E: Final = 1.4426950408889634
LN2: Final = 0.6931471805599453
LN2_HIGH: Final = 0.693359375
"""355/512: few bits, so that its products with whole numbers below 2^15 are exact."""
LN2_LOW: Final = -2.1219444005469057e-4
"""ln 2 - LN2_HIGH."""
ROUNDING: Final = 12582912.0
"""1.5 * 2^23: adding it to |x| < 2^22 leaves x rounded to a whole number in the low bits of the sum."""
MANTISSA_BITS: Final = 23
EXPONENT_BIAS: Final = 127
LEAST_EXPONENT: Final = -88.0
"""e to this power is 2^-127 to the nearest power of two, which is half the smallest normal number."""
SMALLEST_NORMAL: Final = 2.0**-126
SQRT_HALF_BITS: Final = 0x3F3504F3

EXPM1: Final = (0.5, 0.16666666, 0.041666463, 0.008333639, 0.0013935464, 0.0001966817)
"""(e^r - 1 - r) / r^2 for |r| <= ln(2) / 2; e^r - 1 to 2^-30.9."""
EXP: Final = (1.0, 1.0, 0.49999994, 0.16666521, 0.041668266, 0.008368674, 0.0013820634)
"""e^r for |r| <= ln(2) / 2, to 2^-28.3."""
LOG1P: Final = (0.3333333, -0.25000834, 0.20001274, -0.1662289, 0.14200272, -0.13163479, 0.12774247, -0.07641621)
"""(log(1 + f) - f + f^2 / 2) / f^3 for 1 + f from sqrt(1/2) to sqrt(2); log(1 + f) to 2^-27.3."""
ERF_NEAR: Final = (0.12837917, -0.3761259, 0.11282865, -0.026807288, 0.0050577037, -0.00063485187)
"""erf(t) / t - 1 in powers of t^2 for t <= ERF_BORDER; erf(t) to 2^-27.1."""
ERF_FAR: Final = (-0.00010452758, -1.1280609, -0.63651913, -0.10452571, 0.022518946, -0.0031178363, 0.00020367741)
"""log(1 - erf(t)) for t from ERF_BORDER to ERF_LIMIT; erf(t) to 2^-28.8."""
TANH: Final = (1.0, 0.13415863, 0.003537082, 2.1299440e-05, 1.4333095e-08)
TANH_DIVISOR: Final = (1.0, 0.4674919, 0.026034504, 0.00033537782, 8.171919e-07)
"""tanh(t) / t in powers of t^2 as a quotient for t <= 8.5; to 2^-26."""
TANH_LIMIT: Final = 9.0
"""A value at which the quotient is above 1, as tanh is to the last bit."""
ERF_BORDER: Final = 0.85
ERF_LIMIT: Final = 4.0
"""The value from which on erf is 1 to the last bit."""


def exp(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return e^x, at most 1 ulp off.

    e^x = 2^n e^r with a whole n and |r| <= ln(2) / 2. 2^n is applied as two factors, so that neither overflows where
    the result does not, and a denormal result is rounded once.
    """
    n, r = _split(lanes, lanes.min(lanes.max(x, -104.0), 89.0))
    half = lanes.builder.ashr(n, lanes.ints(1))
    rest = lanes.builder.sub(n, half)
    scaled = lanes.mul(lanes.add(_expm1_of_rest(lanes, r), 1.0), _power_of_two(lanes, half))
    return lanes.mul(scaled, _power_of_two(lanes, rest))


def exp_of_negative(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return e^x for x <= 0, off by less than (2 - x / 16) ulp; from -88 on, where it would be denormal, it is 0.

    The bias of exponents is added with ROUNDING, so that a shift alone makes 2^n, and 0 where n is -127.
    """
    clamped = lanes.max(x, LEAST_EXPONENT)
    shifted = lanes.fma(clamped, LOG2_E, ROUNDING + EXPONENT_BIAS)
    scale = lanes.from_bits(lanes.builder.shl(lanes.bits(shifted), lanes.ints(MANTISSA_BITS)))
    n = lanes.sub(shifted, ROUNDING + EXPONENT_BIAS)
    if lanes.target.has_fma:
        rest = lanes.fma(n, -LN2, clamped)
    else:
        rest = lanes.fma(n, -LN2_LOW, lanes.fma(n, -LN2_HIGH, clamped))
    return lanes.mul(lanes.polynomial(rest, EXP), scale)


def expm1(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return e^x - 1, at most 2 ulp off, for x <= 88; beyond, the value at 88. The sign of a zero is lost.

    Below -20 it is -1 to the last bit.
    """
    return _expm1_in_range(lanes, lanes.min(lanes.max(x, -20.0), 88.0))


def log(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return the natural logarithm, at most 1 ulp off: -inf for zeros, NaN for negative numbers.

    x = 2^k m with m from sqrt(1/2) to sqrt(2); denormals are multiplied by 2^23 first.
    """
    denormal = lanes.compare("<", x, SMALLEST_NORMAL)
    normal = lanes.select(denormal, lanes.mul(x, 2.0**MANTISSA_BITS), x)
    # k is how far the exponent is from that of sqrt(1/2); taken off the bits, it leaves m
    bits = lanes.bits(normal)
    mantissa_bits = lanes.ints(MANTISSA_BITS)
    k = lanes.builder.ashr(lanes.builder.sub(bits, lanes.ints(SQRT_HALF_BITS)), mantissa_bits)
    m = lanes.from_bits(lanes.builder.sub(bits, lanes.builder.shl(k, mantissa_bits)))
    exponent = lanes.add(lanes.to_float(k), lanes.select(denormal, -float(MANTISSA_BITS), 0.0))
    result = _log_of_product(lanes, exponent, lanes.sub(m, 1.0))

    # zeros, negative numbers, infinity and NaN have no logarithm by the formula
    infinity = float("inf")
    not_negative = lanes.select(lanes.compare("==", x, 0.0), -infinity, x)
    limit = lanes.select(lanes.compare(">=", x, 0.0), not_negative, float("nan"))
    ordinary = lanes.builder.and_(lanes.compare(">", x, 0.0), lanes.compare("<", x, infinity))
    return lanes.select(ordinary, result, limit)


def softplus(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return log(1 + e^x), at most 2 ulp off, as max(x, 0) + log(1 + y) with y = e^-|x| <= 1.

    1 + y is m or 2 m with m as in `log`, and m - 1, which is y or (y - 1) / 2, is had without the rounding of 1 + y.
    """
    y = exp(lanes, lanes.neg(lanes.abs(x)))
    doubled = lanes.compare(">", y, 0.41421357)
    rest = lanes.select(doubled, lanes.mul(lanes.sub(y, 1.0), 0.5), y)
    logarithm = _log_of_product(lanes, lanes.select(doubled, 1.0, 0.0), rest)
    return lanes.add(lanes.max(x, 0.0), logarithm)


def tanh(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return the hyperbolic tangent, at most 6 ulp off: with t = |x|, t P(t^2) / Q(t^2), bounded by 1."""
    t = lanes.min(lanes.abs(x), TANH_LIMIT)
    square = lanes.mul(t, t)
    dividend = lanes.mul(t, lanes.polynomial(square, TANH))
    quotient = lanes.div(dividend, lanes.polynomial(square, TANH_DIVISOR))
    return lanes.copysign(lanes.min(quotient, 1.0), x)


def sigmoid(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return 1 / (1 + e^-x), at most 3 ulp off; for negative x as e^x / (1 + e^x), which does not overflow."""
    y = exp(lanes, lanes.neg(lanes.abs(x)))
    return lanes.div(lanes.select(lanes.compare("<", x, 0.0), y, 1.0), lanes.add(y, 1.0))


def gate(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return 1 / (1 + e^-x) in half the time of `sigmoid`, at most (5 + |x| / 16) ulp off; 0 where e^x is denormal."""
    y = exp_of_negative(lanes, lanes.neg(lanes.abs(x)))
    return lanes.div(lanes.select(lanes.compare("<", x, 0.0), y, 1.0), lanes.add(y, 1.0))


def erf(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return the error function, at most 2 ulp off.

    With t = |x|: t + t P(t^2) for small t, else 1 - e^Q(t), where e^Q = 2^n e^r as in `exp`.
    """
    t = lanes.min(lanes.abs(x), ERF_LIMIT)
    near = lanes.fma(t, lanes.polynomial(lanes.mul(t, t), ERF_NEAR), t)
    n, r = _split(lanes, lanes.polynomial(t, ERF_FAR))
    scale = _power_of_two(lanes, n)
    far = lanes.sub(lanes.sub(1.0, scale), lanes.mul(scale, _expm1_of_rest(lanes, r)))
    return lanes.copysign(lanes.select(lanes.compare("<", t, ERF_BORDER), near, far), x)


def _split(lanes: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return whole numbers n (integers) and |r| <= ln(2) / 2 with x = n ln(2) + r."""
    shifted = lanes.fma(x, LOG2_E, ROUNDING)
    n = lanes.builder.sub(lanes.bits(shifted), lanes.bits(ROUNDING))
    n_float = lanes.sub(shifted, ROUNDING)
    return n, lanes.fma(n_float, -LN2_LOW, lanes.fma(n_float, -LN2_HIGH, x))


def _power_of_two(lanes: Lanes, n: ir.Value) -> ir.Value:
    """Return 2^n for integers n from -126 to 127."""
    biased = lanes.builder.add(n, lanes.ints(EXPONENT_BIAS))
    return lanes.from_bits(lanes.builder.shl(biased, lanes.ints(MANTISSA_BITS)))


def _expm1_of_rest(lanes: Lanes, r: ir.Value) -> ir.Value:
    """Return e^r - 1 for |r| <= ln(2) / 2."""
    return lanes.fma(lanes.mul(r, r), lanes.polynomial(r, EXPM1), r)


def _expm1_in_range(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return e^x - 1 for |x| <= 88 as 2^n (e^r - 1) + (2^n - 1), which loses nothing near x = 0, where n = 0."""
    n, r = _split(lanes, x)
    scale = _power_of_two(lanes, n)
    return lanes.fma(scale, _expm1_of_rest(lanes, r), lanes.sub(scale, 1.0))


def _log_of_product(lanes: Lanes, exponent: ir.Value, f: ir.Value) -> ir.Value:
    """Return log(2^exponent (1 + f)) for 1 + f from sqrt(1/2) to sqrt(2); the small terms are added first."""
    tail = lanes.mul(lanes.mul(f, f), lanes.fma(f, lanes.polynomial(f, LOG1P), -0.5))
    small = lanes.add(lanes.fma(exponent, LN2_LOW, tail), f)
    return lanes.fma(exponent, LN2_HIGH, small)
