"""The channels between a convolution and the convolutions that read it, and how they are taken out and ordered.

A channel is a column of the convolution's weight, an entry of its bias, of what depthwise convolutions behind it have
for it, and as many rows of its readers' weights as their windows have taps. Only channels that nothing but convolutions
reads can be taken out: what is returned, added to another value or joined with it has channels that somebody relies on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.ops.constants import ConstantOp, constant_array, is_constant
from ...dialect.ops.elementwise import ActivateOp
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, Resample2dOp
from ...dialect.provenance import copy_provenance
from ...dialect.tensors import f32_tensor, shape_of
from ...sparse.csr import CscMatrix
from ..analysis.finiteness import nonfinite_values
from ..analysis.weights import (
    Doubles,
    Indices,
    Mask,
    Weight,
    constant_for,
    finite_inputs,
    finite_outputs,
    weight_of,
    with_inputs_ordered,
    with_outputs_ordered,
    without_outputs,
)
from ..rewriting.neuron_edits import is_partial
from ..rewriting.parameters import place_constant

ChannelStep = ActivateOp | Pool2dOp | Resample2dOp | Depthwise2dOp
"""Ops that keep channels apart."""


@dataclass(frozen=True)
class Channels:
    """The outputs of a convolution, what each of them goes through, sources first, and the convolutions behind."""

    conv: Conv2dOp
    steps: tuple[ChannelStep, ...]
    readers: tuple[Conv2dOp, ...]


def convolutions_with_channels(module: ModuleOp) -> list[Conv2dOp]:
    """Return the convolutions, in block order, that read finite values when the model's inputs are finite."""
    found = [op for op in module.walk() if isinstance(op, Conv2dOp)]
    nonfinite = nonfinite_values(module) if found else ()
    return [op for op in found if op.x not in nonfinite]


def channels_of(conv: Conv2dOp) -> Channels | None:
    """Return the channels of a convolution, None where something relies on all of them or parameters vary."""
    if conv.residual is not None or not _is_known(conv):
        return None
    steps: list[ChannelStep] = []
    readers: list[Conv2dOp] = []
    pending: list[SSAValue] = [conv.result]
    while pending:
        value = pending.pop()
        for use in value.uses:
            reader = use.operation
            if use.index != 0:
                return None
            if isinstance(reader, Conv2dOp) and _is_known(reader):
                readers.append(reader)
            elif isinstance(reader, ChannelStep) and _is_known(reader):
                steps.append(reader)
                pending.append(reader.result)
            else:
                return None
    return Channels(conv, tuple(steps), tuple(readers)) if readers else None


def _is_known(op: Conv2dOp | ChannelStep) -> bool:
    if isinstance(op, Conv2dOp | Depthwise2dOp):
        known = is_constant(op.weight) and (op.bias is None or is_constant(op.bias))
        return known and not is_partial(op.activation)
    return not (isinstance(op, ActivateOp) and is_partial(op.activation))


def kernel_of(conv: Conv2dOp) -> Weight:
    """Return the weight of a convolution [channels taps, outputs].

    Raises:
        ValueError: it is no constant.
    """
    weight = weight_of(conv.weight)
    if weight is None:
        raise ValueError("the weight of a convolution is no constant")
    return weight


def offsets_of(op: Conv2dOp | Depthwise2dOp) -> Doubles:
    """Return the bias of a convolution [channels], zeros where it has none."""
    array = None if op.bias is None else constant_array(op.bias)
    outputs = shape_of(op.weight)[1]
    return np.zeros(outputs) if array is None else np.broadcast_to(array.reshape(-1), (outputs,)).astype(np.float64)


def taps_of(conv: Conv2dOp) -> int:
    """Return the rows that a convolution's weight has for each channel."""
    return len(conv.window.taps)


def rows_of(conv: Conv2dOp, channels: Indices) -> Indices:
    """Return the rows of a convolution's weight for some channels."""
    taps = taps_of(conv)
    return (channels[:, None] * taps + np.arange(taps)).reshape(-1)


def by_channel(conv: Conv2dOp, rows: Mask) -> Mask:
    """Return what holds for the rows of a convolution's weight as [channels, taps]."""
    return rows.reshape(-1, taps_of(conv))


def constants_of(channels: Channels) -> list[Doubles]:
    """Return what depthwise convolutions have for each channel, a row for each tap and one for the bias."""
    rows: list[Doubles] = []
    for step in channels.steps:
        if isinstance(step, Depthwise2dOp):
            array = constant_array(step.weight)
            assert array is not None
            rows += [*array.astype(np.float64), offsets_of(step)]
    return rows


def finite_channels(channels: Channels) -> Mask:
    """Return for each channel whether all constants that it touches are finite, [channels]."""
    finite = finite_outputs(kernel_of(channels.conv)) & np.isfinite(offsets_of(channels.conv))
    for row in constants_of(channels):
        finite &= np.isfinite(row)
    for step in channels.steps:
        if isinstance(step, Resample2dOp) and not np.isfinite(step.fill.value.data):
            finite[:] = False
    for reader in channels.readers:
        finite &= by_channel(reader, finite_inputs(kernel_of(reader))).all(axis=1)
    return finite


def set_kernel(conv: Conv2dOp, weight: Weight) -> None:
    """Let a convolution use `weight`; its result keeps its type."""
    conv.operands[1] = place_constant(constant_for(weight), conv, conv.weight)


def set_offsets(conv: Conv2dOp, bias: Doubles) -> Conv2dOp:
    """Return the convolution that adds `bias` [outputs], which stands where `conv` stood if that had none."""
    constant = ConstantOp(bias.astype(np.float32))
    value = place_constant(constant, conv, conv.bias)
    if conv.bias is not None:
        conv.operands[2] = value
        return conv
    made = Conv2dOp(conv.x, conv.weight, value, conv.window, conv.residual)
    made.activation = conv.activation
    copy_provenance(conv, made)
    made.result.name_hint = conv.result.name_hint
    Rewriter.replace_op(conv, made)
    return made


def keep_channels(channels: Channels, kept: Indices) -> None:
    """Take all channels but `kept` (ascending) out of convolution and steps; the caller changes readers' weights."""
    set_kernel(channels.conv, without_outputs(kernel_of(channels.conv), kept))
    _select(channels, kept)


def order_channels(channels: Channels, order: Indices) -> None:
    """Put the channels into another order: channel i becomes what channel `order[i]` was."""
    weight = kernel_of(channels.conv)
    ordered = with_outputs_ordered(weight, order) if isinstance(weight, CscMatrix) else weight[:, order]
    set_kernel(channels.conv, ordered)
    _select(channels, order)
    for reader in dict.fromkeys(channels.readers):
        weight, rows = kernel_of(reader), rows_of(reader, order)
        set_kernel(reader, with_inputs_ordered(weight, rows) if isinstance(weight, CscMatrix) else weight[rows])


def _select(channels: Channels, which: Indices) -> None:
    """Let the bias of the convolution, and the steps behind it, have these channels, in this order."""
    _keep_constants(channels.conv, 2, which)
    _retype(channels.conv.result, len(which))
    for step in channels.steps:
        if isinstance(step, Depthwise2dOp):
            _keep_constants(step, 1, which)
        _retype(step.result, len(which))


def _keep_constants(op: Conv2dOp | Depthwise2dOp, first: int, kept: Indices) -> None:
    """Keep the channels `kept` of constants that end in channels, from an operand on."""
    for index, operand in enumerate(_constants(op)):
        array = constant_array(operand)
        if index + 1 >= first and array is not None and array.shape[-1] > 1:
            made = ConstantOp(np.ascontiguousarray(array[..., kept]))
            op.operands[index + 1] = place_constant(made, op, operand)


def _constants(op: Conv2dOp | Depthwise2dOp) -> Sequence[SSAValue]:
    return [op.weight] if op.bias is None else [op.weight, op.bias]


def _retype(value: SSAValue, channels: int) -> None:
    samples, _, *rest = shape_of(value)
    Rewriter.replace_value_with_new_type(value, f32_tensor((samples, channels, *rest)))
