"""Derivatives of activations: ops for the slope at x, from x or from the result y, whichever is less work."""

from collections.abc import Callable, Mapping
from math import isfinite, pi, sqrt
from types import MappingProxyType
from typing import Final

from xdsl.ir import SSAValue

from .tape import Tape

Slope = Callable[..., SSAValue]
"""(tape, value, parameters of the activation) -> its derivative there."""


def _abs(tape: Tape, x: SSAValue) -> SSAValue:
    return tape.sub(tape.step(x), tape.step(tape.activate("neg", x)))


def _celu(tape: Tape, x: SSAValue, alpha: float) -> SSAValue:
    return tape.activate("exp", tape.times(_below_zero(tape, x), 1 / alpha))


def _clip(tape: Tape, y: SSAValue, low: float, high: float) -> SSAValue:
    inside: SSAValue | None = None
    for bound, sign in ((low, 1.0), (high, -1.0)):
        if isfinite(bound):
            above = tape.step(tape.times(tape.plus(y, -bound), sign))
            inside = above if inside is None else tape.mul(inside, above)
    return tape.number(1.0, y) if inside is None else inside


def _elu(tape: Tape, x: SSAValue, alpha: float) -> SSAValue:
    return _selu(tape, x, alpha, 1.0)


def _erf(tape: Tape, x: SSAValue) -> SSAValue:
    return tape.times(tape.activate("exp", tape.times(tape.square(x), -1.0)), 2 / sqrt(pi))


def _same(tape: Tape, y: SSAValue) -> SSAValue:
    del tape
    return y


def _gelu(tape: Tape, x: SSAValue) -> SSAValue:
    below = tape.plus(tape.times(tape.activate("erf", tape.times(x, 1 / sqrt(2))), 0.5), 0.5)
    density = tape.times(tape.activate("exp", tape.times(tape.square(x), -0.5)), 1 / sqrt(2 * pi))
    return tape.add(below, tape.mul(x, density))


def _gelu_tanh(tape: Tape, x: SSAValue) -> SSAValue:
    scale, cubic, squared = sqrt(2 / pi), 0.044715, tape.square(x)
    inner = tape.mul(x, tape.plus(tape.times(squared, scale * cubic), scale))
    bent = tape.activate("tanh", inner)
    slope = tape.plus(tape.times(squared, 3 * scale * cubic), scale)
    further = tape.mul(tape.mul(x, slope), _tanh(tape, bent))
    return tape.times(tape.add(tape.plus(bent, 1.0), further), 0.5)


def _hard_sigmoid(tape: Tape, y: SSAValue, alpha: float, beta: float) -> SSAValue:
    del beta
    return tape.times(_clip(tape, y, 0.0, 1.0), alpha)


def _hard_swish(tape: Tape, x: SSAValue) -> SSAValue:
    gate = tape.activate("hard_sigmoid", x, 1 / 6, 0.5)
    return tape.add(gate, tape.times(tape.mul(x, _clip(tape, gate, 0.0, 1.0)), 1 / 6))


def _leaky_relu(tape: Tape, x: SSAValue, alpha: float) -> SSAValue:
    return tape.plus(tape.times(tape.step(x), 1 - alpha), alpha)


def _scaled_hard_swish(tape: Tape, x: SSAValue, scale: float, shift: float) -> SSAValue:
    del shift
    return tape.times(_hard_swish(tape, x), scale)


def _scaled_relu(tape: Tape, x: SSAValue, scale: float, shift: float) -> SSAValue:
    del shift
    return tape.times(tape.step(x), scale)


def _log(tape: Tape, x: SSAValue) -> SSAValue:
    return tape.activate("reciprocal", x)


def _mish(tape: Tape, x: SSAValue) -> SSAValue:
    bent = tape.activate("tanh", tape.activate("softplus", x))
    return tape.add(bent, tape.mul(tape.mul(x, _tanh(tape, bent)), tape.activate("sigmoid", x)))


def _neg(tape: Tape, y: SSAValue) -> SSAValue:
    return tape.number(-1.0, y)


def _reciprocal(tape: Tape, y: SSAValue) -> SSAValue:
    return tape.times(tape.square(y), -1.0)


def _relu(tape: Tape, y: SSAValue) -> SSAValue:
    return tape.step(y)


def _selu(tape: Tape, x: SSAValue, alpha: float, gamma: float) -> SSAValue:
    above = tape.step(x)
    below = tape.times(tape.activate("exp", _below_zero(tape, x)), gamma * alpha)
    return tape.add(tape.times(above, gamma), tape.sub(below, tape.mul(above, below)))


def _sigmoid(tape: Tape, y: SSAValue) -> SSAValue:
    return tape.sub(y, tape.square(y))


def _silu(tape: Tape, x: SSAValue, alpha: float) -> SSAValue:
    gate = tape.activate("sigmoid", tape.times(x, alpha))
    return tape.add(gate, tape.mul(tape.times(x, alpha), _sigmoid(tape, gate)))


def _softplus(tape: Tape, x: SSAValue) -> SSAValue:
    return tape.activate("sigmoid", x)


def _sqrt(tape: Tape, y: SSAValue) -> SSAValue:
    return tape.times(tape.activate("reciprocal", y), 0.5)


def _square(tape: Tape, x: SSAValue) -> SSAValue:
    return tape.times(x, 2.0)


def _tanh(tape: Tape, y: SSAValue) -> SSAValue:
    return tape.plus(tape.times(tape.square(y), -1.0), 1.0)


def _below_zero(tape: Tape, x: SSAValue) -> SSAValue:
    return tape.activate("clip", x, -float("inf"), 0.0)


SLOPES_AT_RESULT: Final[Mapping[str, Slope]] = MappingProxyType(
    {
        "clip": _clip,
        "exp": _same,
        "hard_sigmoid": _hard_sigmoid,
        "neg": _neg,
        "reciprocal": _reciprocal,
        "relu": _relu,
        "sigmoid": _sigmoid,
        "sqrt": _sqrt,
        "tanh": _tanh,
    }
)
"""Kind of activation -> its derivative from its result: a layer that it is part of stays one op."""

SLOPES_AT_INPUT: Final[Mapping[str, Slope]] = MappingProxyType(
    {
        "abs": _abs,
        "celu": _celu,
        "elu": _elu,
        "erf": _erf,
        "gelu": _gelu,
        "gelu_tanh": _gelu_tanh,
        "hard_swish": _hard_swish,
        "leaky_relu": _leaky_relu,
        "log": _log,
        "mish": _mish,
        "scaled_hard_swish": _scaled_hard_swish,
        "scaled_relu": _scaled_relu,
        "selu": _selu,
        "silu": _silu,
        "softplus": _softplus,
        "square": _square,
    }
)
"""Kind of activation -> its derivative from what it was applied to."""
