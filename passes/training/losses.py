"""Gradients of losses: ops for the derivative of what a row of outputs loses against its target.

Losses are means over rows; a gradient is that of the sum, so that rows may come in any number.
"""

from collections.abc import Callable, Mapping
from math import pi, sqrt
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from xdsl.ir import SSAValue

from ...dialect.ops.layers import LogSoftmaxOp, SoftmaxOp
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.tensors import shape_of
from .tape import Tape

LossName = Literal["mse", "cross-entropy", "crps"]


class LossGradient(NamedTuple):
    """A value of the network, and the gradient of the loss there."""

    value: SSAValue
    gradient: SSAValue


class Loss(NamedTuple):
    """A loss: the features of its targets by those of outputs, and its gradient (tape, output, target)."""

    target_features: Callable[[int], int]
    gradient: Callable[[Tape, SSAValue, SSAValue], LossGradient]


def _mse(tape: Tape, y: SSAValue, target: SSAValue) -> LossGradient:
    return LossGradient(y, tape.times(tape.sub(y, target), 2 / max(1, shape_of(y)[-1])))


def _cross_entropy(tape: Tape, y: SSAValue, target: SSAValue) -> LossGradient:
    # classes by softmax at the end are those of what it was applied to
    scores = y.owner.x if isinstance(y.owner, SoftmaxOp | LogSoftmaxOp) else y
    return LossGradient(scores, tape.sub(tape.write(SoftmaxOp(scores))[0], target))


def _crps(tape: Tape, y: SSAValue, target: SSAValue) -> LossGradient:
    """Gneiting and Raftery 2007: of a normal distribution, whose means stand before all deviations."""
    count = shape_of(y)[-1] // 2
    mean, deviation = tape.write(SplitOp(y, 1, [count, count]))
    z = tape.div(tape.sub(target, mean), deviation)
    by_mean = tape.times(tape.activate("erf", tape.times(z, 1 / sqrt(2))), -1 / count)
    density = tape.times(tape.activate("exp", tape.times(tape.square(z), -0.5)), sqrt(2 / pi) / count)
    by_deviation = tape.plus(density, -1 / (sqrt(pi) * count))
    return LossGradient(y, tape.write(ConcatOp([by_mean, by_deviation], 1))[0])


def _same(features: int) -> int:
    return features


def _half(features: int) -> int:
    if features < 2 or features % 2:
        raise ValueError(f"expected means and as many deviations for crps, got {features} outputs")
    return features // 2


LOSSES: Final[Mapping[LossName, Loss]] = MappingProxyType(
    {
        "mse": Loss(_same, _mse),
        "cross-entropy": Loss(_same, _cross_entropy),
        "crps": Loss(_half, _crps),
    }
)
"""The losses by name."""
