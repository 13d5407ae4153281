"""Semantics of codes and of layers on them: sums of integers, all else in float32, whatever the dtype of x.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).
"""

from collections.abc import Sequence

import numpy as np

from ..attributes.activations import Floats, activate
from ..attributes.codes import CodesAttr, codes_in
from ..ops.elementwise import ConvertOp
from ..ops.images import Conv2dOp
from ..ops.layers import LinearOp
from ..ops.quantized_layers import QuantizedLayer


def run_convert(op: ConvertOp, x: Floats) -> Floats:
    """Return the codes of floats, or the floats of codes, in the dtype of `x`."""
    codes, values = op.codes, x.astype(np.float32)
    scale, zero = np.float32(codes.scale), np.float32(codes.zero)
    return (codes.steps(values / scale) + zero if op.rounds else (values - zero) * scale).astype(x.dtype)


def run_linear(op: LinearOp, x: Floats, *parameters: Floats) -> Floats:
    """Return the result of a layer of codes for rows [..., K]: floats, or codes."""
    values = x.astype(np.float32)
    if op.finds_codes:
        return run_on_codes(op, *dynamic_steps(values), parameters).astype(x.dtype)
    return run_on_codes(op, values - np.float32(op.on_codes.codes.zero), np.float32(1), parameters).astype(x.dtype)


def run_on_codes(op: LinearOp | Conv2dOp, steps: Floats, scale: np.float32, parameters: Sequence[Floats]) -> Floats:
    """Return floats, or codes, [..., N] for inputs code - zero [..., K], whose scale counts where a call found it."""
    layer, output = op.on_codes, codes_in(op.result.type)
    weight, *bias, multiplier = parameters
    added = bias[0] if bias else np.zeros(layer.outputs, np.float32)
    if op.finds_codes:
        return run_dynamic_layer(layer, steps, scale, (weight, added, multiplier))
    result = run_layer(layer, steps, (weight, added, multiplier), output)
    return result if output is None else result + np.float32(output.zero)


def run_layer(layer: QuantizedLayer, steps: Floats, parameters: Sequence[Floats], codes: CodesAttr | None) -> Floats:
    """Return values [..., N] for inputs code - zero [..., K], or code - zero where `codes` say to what to round."""
    weight, bias, multiplier = parameters
    # integers of up to 53 bits are doubles, whose products are fast; sums wrap around as those of 32 bits do
    sums = (steps.astype(np.float64) @ weight.astype(np.float64) + bias).astype(np.int64)
    totals = sums.astype(np.int32).astype(np.float32)
    return layer.results(totals, multiplier.astype(np.float32), codes)


def dynamic_steps(x: Floats) -> tuple[Floats, np.float32]:
    """Return code - zero of values, and the scale, that the range of all of them makes."""
    scale, zero = CodesAttr.of_range(x)
    # a NaN has the least code
    multiples = np.where(x / scale > -zero, x / scale, -zero)
    return np.rint(np.minimum(multiples, 255 - zero)), scale


def run_dynamic_layer(layer: QuantizedLayer, steps: Floats, scale: np.float32, parameters: Sequence[Floats]) -> Floats:
    """Return values [..., N] for inputs code - zero [..., K] of a scale that was found."""
    weight, bias, multiplier = parameters
    sums = steps.astype(np.float64) @ weight.astype(np.float64)
    values = sums.astype(np.int64).astype(np.int32).astype(np.float32) * (scale * multiplier.astype(np.float32))
    values = values + bias.astype(np.float32)
    return values if layer.activation is None else activate(layer.activation, values)
