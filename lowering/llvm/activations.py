"""Activations of the dialect as vector instructions, NaN and infinities as in onnxruntime."""

from collections.abc import Callable, Mapping
from functools import cache
from math import erf as erf_of
from types import MappingProxyType
from typing import Final

import numpy as np
from llvmlite import ir

from ...dialect.attributes.activations import CODES
from .intrinsics import call_intrinsic
from .quotients import HALVES, rounded_quotient
from .transcendental import erf, exp, expm1, gate, log, sigmoid, softplus, tanh
from .vectors import Lanes

SQRT_HALF: Final = 0.7071067811865476
SQRT_8_BY_PI: Final = 1.5957691216057308
GELU_CUBE: Final = 0.044715

UPPER: Final = 0xFFFF0000
"""The bits of a float that a bfloat16 has."""


def emit_activation(lanes: Lanes, kind: str, parameters: tuple[float, ...], x: ir.Value) -> ir.Value:
    """Return the activation `kind` of a vector; the parameters are in the order of their names in `ACTIVATIONS`."""
    return EMITTERS[kind](lanes, x, *parameters)


def emit_activation_of_codes(lanes: Lanes, kind: str, parameters: tuple[float, ...], x: ir.Value) -> ir.Value:
    """Return the same where it is going to be rounded to codes of eight bits: it may be 3e-6 off."""
    return _gelu_by_cubics(lanes, x) if has_approximation(lanes, kind) else emit_activation(lanes, kind, parameters, x)


def has_approximation(lanes: Lanes, kind: str) -> bool:
    """Return whether an activation has one for what is going to be rounded."""
    return kind == "gelu" and lanes.width == CUBICS and lanes.target.has_avx512


def _gelu_by_cubics(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return x / 2 + |x| (erf(|x| / sqrt(2)) / 2), the latter by a cubic around each third, chosen in a register."""
    builder, magnitude = lanes.builder, lanes.abs(x)
    thirds = lanes.min(lanes.mul(magnitude, THIRDS), float(CUBICS - 1))
    shifted = lanes.add(thirds, HALVES)
    index, rest = lanes.bits(shifted), lanes.sub(thirds, lanes.sub(shifted, HALVES))
    half = None
    for constants in reversed(gelu_cubics()):
        table = ir.Constant(lanes.vector, list(constants))
        chosen = call_intrinsic(builder, CHOOSE, lanes.vector, [table, index])
        half = chosen if half is None else lanes.fma(half, rest, chosen)
    assert half is not None
    return lanes.fma(magnitude, half, lanes.mul(x, 0.5))


@cache
def gelu_cubics() -> list[list[float]]:
    """Return the coefficients of each power, of cubics around multiples of a third, the last of which is a constant."""
    rests = np.cos(np.pi * (np.arange(32) + 0.5) / 32) / 2
    cubics: list[list[float]] = []
    for n in range(CUBICS - 1):
        halves = [erf_of((n + rest) / THIRDS * SQRT_HALF) / 2 for rest in rests.tolist()]
        cubics.append([float(one) for one in np.polynomial.Polynomial.fit(rests, halves, 3, domain=[]).coef])
    return [[*power, end] for power, end in zip(zip(*cubics, strict=True), (0.5, 0.0, 0.0, 0.0), strict=True)]


THIRDS: Final = 3.0

CUBICS: Final = 16
"""As many as a register has floats."""

CHOOSE: Final = "llvm.x86.avx512.permvar.sf.512"
"""Floats of a register, chosen by the last four bits of each index."""


def _bfloat16(lanes: Lanes, x: ir.Value) -> ir.Value:
    builder, bits = lanes.builder, lanes.bits(x)
    upper = lanes.ints(UPPER)
    odd = builder.and_(builder.lshr(bits, lanes.ints(16)), lanes.ints(1))
    rounded = builder.add(builder.add(bits, lanes.ints(0x7FFF)), odd)
    # a NaN stays one, quiet, whatever is cut off
    quiet = builder.or_(bits, lanes.ints(0x400000))
    return lanes.from_bits(builder.and_(builder.select(lanes.is_nan(x), quiet, rounded), upper))


def _celu(lanes: Lanes, x: ir.Value, alpha: float) -> ir.Value:
    ratio = lanes.div(x, alpha)
    # with alpha <= 0 the ratio that counts may be large, where expm1 does not overflow as it should
    growth = expm1(lanes, ratio) if alpha > 0.0 else lanes.sub(exp(lanes, ratio), 1.0)
    below = lanes.mul(growth, alpha)
    return lanes.add(lanes.max(x, 0.0), lanes.min(below, 0.0))


def _clip(lanes: Lanes, x: ir.Value, low: float, high: float) -> ir.Value:
    return lanes.min(lanes.max(x, low), high)


def _elu(lanes: Lanes, x: ir.Value, alpha: float) -> ir.Value:
    return lanes.select(lanes.compare("<", x, 0.0), lanes.mul(expm1(lanes, x), alpha), x)


def _gelu(lanes: Lanes, x: ir.Value) -> ir.Value:
    return lanes.mul(lanes.mul(x, 0.5), lanes.add(erf(lanes, lanes.mul(x, SQRT_HALF)), 1.0))


def _gelu_tanh(lanes: Lanes, x: ir.Value) -> ir.Value:
    # (1 + tanh(u)) / 2 is sigmoid(2 u), which does not cancel for negative u
    doubled = lanes.mul(x, lanes.fma(lanes.mul(x, x), SQRT_8_BY_PI * GELU_CUBE, SQRT_8_BY_PI))
    return lanes.mul(x, sigmoid(lanes, doubled))


def _hard_sigmoid(lanes: Lanes, x: ir.Value, alpha: float, beta: float) -> ir.Value:
    return _clip(lanes, lanes.fma(x, alpha, beta), 0.0, 1.0)


def _hard_swish(lanes: Lanes, x: ir.Value) -> ir.Value:
    return lanes.mul(x, _hard_sigmoid(lanes, x, 1.0 / 6.0, 0.5))


def _leaky_relu(lanes: Lanes, x: ir.Value, alpha: float) -> ir.Value:
    return lanes.select(lanes.compare("<", x, 0.0), lanes.mul(x, alpha), x)


def _mish(lanes: Lanes, x: ir.Value) -> ir.Value:
    # tanh(log(1 + e^x)) = n / (n + 2) with n = e^x (e^x + 2); for positive x both are multiplied by y^2, y = e^-x
    y = exp(lanes, lanes.neg(lanes.abs(x)))
    positive = lanes.compare(">", x, 0.0)
    numerator = lanes.select(positive, lanes.fma(y, 2.0, 1.0), lanes.mul(y, lanes.add(y, 2.0)))
    rest = lanes.select(positive, lanes.mul(lanes.mul(y, y), 2.0), 2.0)
    return lanes.mul(x, lanes.div(numerator, lanes.add(numerator, rest)))


def _quantize(lanes: Lanes, x: ir.Value, scale: float, zero: float) -> ir.Value:
    def within(multiples: ir.Value) -> ir.Value:
        return _within_codes(lanes, multiples, zero)

    return lanes.mul(lanes.sub(rounded_quotient(lanes, x, (scale, 1 / scale), within), HALVES), scale)


def _within_codes(lanes: Lanes, multiples: ir.Value, zero: float) -> ir.Value:
    # the bound first: a NaN becomes the least code
    return lanes.min(lanes.max(-zero, multiples), CODES - 1 - zero)


def nearest_steps(lanes: Lanes, multiples: ir.Value, zero: float) -> ir.Value:
    """Return code - zero for values that are given as multiples of the scale."""
    return lanes.sub(lanes.add(_within_codes(lanes, multiples, zero), HALVES), HALVES)


def _reciprocal(lanes: Lanes, x: ir.Value) -> ir.Value:
    return lanes.div(1.0, x)


def _relu(lanes: Lanes, x: ir.Value) -> ir.Value:
    return lanes.max(x, 0.0)


def _scaled_hard_swish(lanes: Lanes, x: ir.Value, scale: float, shift: float) -> ir.Value:
    return lanes.fma(_hard_swish(lanes, x), scale, shift)


def _scaled_relu(lanes: Lanes, x: ir.Value, scale: float, shift: float) -> ir.Value:
    return lanes.fma(_relu(lanes, x), scale, shift)


def _selu(lanes: Lanes, x: ir.Value, alpha: float, gamma: float) -> ir.Value:
    return lanes.mul(_elu(lanes, x, alpha), gamma)


def _silu(lanes: Lanes, x: ir.Value, alpha: float) -> ir.Value:
    return lanes.mul(x, gate(lanes, lanes.mul(x, alpha)))


def _square(lanes: Lanes, x: ir.Value) -> ir.Value:
    return lanes.mul(x, x)


EMITTERS: Final[Mapping[str, Callable[..., ir.Value]]] = MappingProxyType(
    {
        "abs": Lanes.abs,
        "bfloat16": _bfloat16,
        "celu": _celu,
        "clip": _clip,
        "elu": _elu,
        "erf": erf,
        "exp": exp,
        "gelu": _gelu,
        "gelu_tanh": _gelu_tanh,
        "hard_sigmoid": _hard_sigmoid,
        "hard_swish": _hard_swish,
        "leaky_relu": _leaky_relu,
        "log": log,
        "mish": _mish,
        "neg": Lanes.neg,
        "quantize": _quantize,
        "reciprocal": _reciprocal,
        "relu": _relu,
        "scaled_hard_swish": _scaled_hard_swish,
        "scaled_relu": _scaled_relu,
        "selu": _selu,
        "sigmoid": gate,
        "silu": _silu,
        "softplus": softplus,
        "sqrt": Lanes.sqrt,
        "square": _square,
        "tanh": tanh,
    }
)
"""Kind of activation -> what emits it, given the lanes, the vector and the activation's parameters."""
