"""Derivatives of ops: from the gradient of a result to those of operands, written as ops of the same dialect."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.constants import ConstantOp, SparseConstantOp, is_constant
from ...dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, SubOp
from ...dialect.ops.graphs import AggregateOp, AttendEdgesOp
from ...dialect.ops.layers import (
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.ops.training.edge_slopes import EdgeSlopesOp, EdgeTotalsOp
from ...dialect.ops.training.gradients import SampledProductOp, SumRowsOp
from ...dialect.provenance import node_name
from ...dialect.tensors import shape_of, shape_text
from ...foundation.extensible_table import ExtensibleTable
from ...sparse.csr import CscMatrix
from .activation_slopes import SLOPES_AT_INPUT, SLOPES_AT_RESULT
from .tape import Tape

Gradients = Sequence[SSAValue | None]
"""The gradient of each operand; None where nothing is to be done, as for constants that are not trained."""

Derivative = Callable[[Any, Tape, Sequence[SSAValue]], Gradients]
"""(op, tape, gradients of its results [rows, features]) -> those of its operands."""


def _linear(op: LinearOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    (gradient,) = gradients
    if op.activation is not None:
        gradient = tape.mul(gradient, slope(op.activation, tape, op.result, None))
    (weight,) = tape.write(SampledProductOp(op.x, gradient, op.weight))
    bias = [] if op.bias is None else [_summed(tape, gradient, op.bias)]
    return [_back(tape, gradient, op.weight), weight, *bias]


def _back(tape: Tape, gradient: SSAValue, weight: SSAValue) -> SSAValue:
    """Return the gradient of the input of a linear layer."""
    match weight.owner:
        case SparseConstantOp() as constant:
            turned: Operation = SparseConstantOp(constant.weight.transposed())
        case ConstantOp() as constant:
            turned = ConstantOp(np.ascontiguousarray(constant.array.T))
        case _:
            raise AssertionError("a weight is a constant")
    return tape.write(LinearOp(gradient, tape.write(turned)[0]))[0]


def _aggregate(op: AggregateOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    """Sums over edges read backwards are sums over the edges turned around."""
    if op.of_call or op.maximum is not None or not isinstance(op.graph.owner, SparseConstantOp):
        raise ValueError("expected sums over the edges of a constant graph")
    (gradient,) = gradients
    if op.activation is not None:
        gradient = tape.mul(gradient, slope(op.activation, tape, op.result, None))
    turned = tape.write(SparseConstantOp(op.edges.transposed()))[0]
    bias = [] if op.bias is None else [_summed(tape, gradient, op.bias)]
    return [tape.write(AggregateOp(gradient, turned))[0], None, *bias]


def _attend_edges(op: AttendEdgesOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    """See `redpebble.dialect.ops.training.edge_slopes`, whose names these are."""
    softmax = op.softmax
    if op.of_call or not isinstance(op.graph.owner, SparseConstantOp):
        raise ValueError("expected attention over the edges of a constant graph")
    if softmax.activation is not None and softmax.activation.kind != "leaky_relu":
        raise KeyError(softmax.activation.kind)
    (gradient,) = gradients
    if op.activation is not None:
        gradient = tape.mul(gradient, slope(op.activation, tape, op.result, None))
    features, heads = shape_of(op.x)[1], softmax.heads
    (of_heads,) = tape.write(SparseConstantOp(CscMatrix.from_dense(_heads_of_features(features, heads))))

    def summed(x: SSAValue) -> SSAValue:
        return tape.write(LinearOp(x, of_heads))[0]

    (totals,) = tape.write(EdgeTotalsOp(op.scores, op.graph, softmax))
    (sums,) = tape.write(EdgeSlopesOp(op.x, op.scores, totals, op.graph, softmax, sources=False))
    means, sloped, slopes = tape.write(SplitOp(sums, 1, [features, features, heads]))
    means = summed(tape.mul(gradient, means))
    to = tape.sub(summed(tape.mul(gradient, sloped)), tape.mul(means, slopes))
    (turned,) = tape.write(SparseConstantOp(op.edges.transposed()))
    (totals,) = tape.write(ConcatOp([totals, means], 1))
    (sums,) = tape.write(EdgeSlopesOp(gradient, op.scores, totals, turned, softmax, sources=True))
    back, sloped, slopes = tape.write(SplitOp(sums, 1, [features, features, heads]))
    scores = tape.write(ConcatOp([tape.sub(summed(tape.mul(op.x, sloped)), slopes), to], 1))[0]
    bias = [] if op.bias is None else [_summed(tape, gradient, op.bias)]
    return [back, scores, None, *bias]


def _heads_of_features(features: int, heads: int) -> NDArray[np.float32]:
    """Return the weight [features, heads] that sums up the features of each head."""
    return np.repeat(np.eye(heads, dtype=np.float32), features // heads, axis=0)


def _activate(op: ActivateOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    return [tape.mul(gradients[0], slope(op.activation, tape, op.result, op.x))]


def slope(activation: ActivationAttr, tape: Tape, y: SSAValue, x: SSAValue | None) -> SSAValue:
    """Return the derivative of an activation with the result y; x is what it was applied to, where that is known.

    Raises:
        KeyError: it has none that is known from these.
    """
    kind = activation.kind
    if kind in SLOPES_AT_RESULT:
        return SLOPES_AT_RESULT[kind](tape, y, *activation.values)
    if x is None:
        raise KeyError(kind)
    return SLOPES_AT_INPUT[kind](tape, x, *activation.values)


def _add(op: AddOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    return [_summed(tape, gradients[0], operand) for operand in op.operands]


def _sub(op: SubOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    negative = tape.times(gradients[0], -1.0)
    return [_summed(tape, gradients[0], op.left), _summed(tape, negative, op.right)]


def _mul(op: MulOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    return [
        _summed(tape, tape.mul(gradients[0], other), operand)
        for operand, other in ((op.left, op.right), (op.right, op.left))
    ]


def _div(op: DivOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    left = tape.div(gradients[0], op.right)
    right = tape.times(tape.mul(left, op.result), -1.0)
    return [_summed(tape, left, op.left), _summed(tape, right, op.right)]


def _summed(tape: Tape, gradient: SSAValue, operand: SSAValue) -> SSAValue | None:
    """Return the gradient of an operand that may be broadcast over rows, or over features.

    Raises:
        ValueError: it is broadcast in another way.
    """
    shape, whole = shape_of(operand), shape_of(gradient)
    if shape == whole:
        return gradient
    if is_constant(operand):
        return tape.write(SumRowsOp(gradient))[0] if shape == whole[1:] else None
    if shape == (*whole[:-1], 1):
        return tape.times(tape.mean(gradient), float(whole[-1]))
    raise ValueError(f"{shape_text(shape)} is broadcast to {shape_text(whole)}")


def _layer_norm(op: LayerNormOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    centred = tape.sub(op.x, tape.mean(op.x))
    inner, scale = _normalised(tape, centred, gradients[0], op)
    inner = tape.sub(inner, tape.mean(inner))
    bias = [] if op.bias is None else [_summed(tape, gradients[0], op.bias)]
    return [inner, scale, *bias]


def _rms_norm(op: RmsNormOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    return _normalised(tape, op.x, gradients[0], op)


def _normalised(
    tape: Tape, x: SSAValue, gradient: SSAValue, op: LayerNormOp | RmsNormOp
) -> tuple[SSAValue, SSAValue | None]:
    """Return the gradients of x and of the scale of x / rms(x) * scale."""
    deviation = tape.activate("sqrt", tape.plus(tape.mean(tape.square(x)), op.epsilon.value.data))
    unit = tape.div(x, deviation)
    scaled = tape.mul(gradient, op.scale)
    along = tape.mul(unit, tape.mean(tape.mul(scaled, unit)))
    return tape.div(tape.sub(scaled, along), deviation), _summed(tape, tape.mul(gradient, unit), op.scale)


def _batch_norm(op: BatchNormOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    parameters = [owner.array for owner in (value.owner for value in op.operands[1:]) if isinstance(owner, ConstantOp)]
    scale, _, _, variance = parameters
    factor = (scale / np.sqrt(variance + op.epsilon.value.data)).astype(np.float32)
    return [tape.mul(gradients[0], tape.write(ConstantOp(factor))[0]), None, None, None, None]


def _softmax(op: SoftmaxOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    weighted = tape.mul(gradients[0], op.result)
    whole = tape.times(tape.mean(weighted), float(shape_of(op.x)[-1]))
    return [tape.sub(weighted, tape.mul(op.result, whole))]


def _log_softmax(op: LogSoftmaxOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    whole = tape.times(tape.mean(gradients[0]), float(shape_of(op.x)[-1]))
    return [tape.sub(gradients[0], tape.mul(tape.activate("exp", op.result), whole))]


def _reduce_mean(op: ReduceMeanOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    return [tape.mul(gradients[0], tape.number(1 / shape_of(op.x)[-1], op.x))]


def _concat(op: ConcatOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    along = op.axis.value.data
    if along == 0:
        raise ValueError("rows are joined")
    return tape.write(SplitOp(gradients[0], along, [shape_of(part)[along] for part in op.parts]))


def _split(op: SplitOp, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    if op.axis.value.data == 0:
        raise ValueError("rows are parted")
    return tape.write(ConcatOp(list(gradients), op.axis.value.data))


DERIVATIVES: Final = ExtensibleTable[type[Operation], Derivative](
    {
        LinearOp: _linear,
        AggregateOp: _aggregate,
        AttendEdgesOp: _attend_edges,
        ActivateOp: _activate,
        AddOp: _add,
        SubOp: _sub,
        MulOp: _mul,
        DivOp: _div,
        LayerNormOp: _layer_norm,
        RmsNormOp: _rms_norm,
        BatchNormOp: _batch_norm,
        SoftmaxOp: _softmax,
        LogSoftmaxOp: _log_softmax,
        ReduceMeanOp: _reduce_mean,
        ConcatOp: _concat,
        SplitOp: _split,
    }
)
"""The derivative of each op that has one."""


def derivative_of(op: Operation, tape: Tape, gradients: Sequence[SSAValue]) -> Gradients:
    """Return the gradients of an op's operands.

    Raises:
        ValueError: it has none; the message names op and node.
    """
    where = f"node {node_name(op)!r}: {op.name}" if node_name(op) else op.name
    derivative = DERIVATIVES.get(type(op))
    if derivative is None:
        raise ValueError(
            f"expected an op with a derivative, {', '.join(sorted(known.name for known in DERIVATIVES))}, got {where}"
        )
    try:
        return derivative(op, tape, gradients)
    except KeyError as error:
        raise ValueError(f"{where} has an activation without a derivative: {error.args[0]}") from None
    except ValueError as error:
        raise ValueError(f"{where} has no derivative here: {error}") from None
