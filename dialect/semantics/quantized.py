"""Semantics of quantized layers, on numpy arrays: sums of integers, all else in float32 whatever the dtype of x."""

from collections.abc import Sequence

import numpy as np

from ..attributes.activations import Floats, activate
from ..attributes.codes import CodesAttr
from ..ops.quantized_layers import PARAMETERS, QuantizedLayer, QuantizedLayersOp


def run_quantized_layers(op: QuantizedLayersOp, x: Floats, *parameters: Floats) -> Floats:
    """Return the result of the layers for rows [..., K]; bytes are codes, whatever their dtype."""
    values = x.astype(np.float32)
    if op.is_dynamic:
        return _run_dynamic(op.layers[0], values, parameters).astype(x.dtype)
    following = [*op.codes.data[1:], None][: len(op.layers)]
    first = op.codes.data[0]
    steps = values - np.float32(first.zero) if op.reads_bytes else first.steps(values / np.float32(first.scale))
    for index, (layer, codes) in enumerate(zip(op.layers, following, strict=True)):
        steps = run_layer(layer, steps, parameters[PARAMETERS * index : PARAMETERS * (index + 1)], codes)
        values = steps if codes is None else steps * np.float32(codes.scale)
    if op.yields_bytes and op.output is not None:
        return (steps + np.float32(op.output.zero)).astype(x.dtype)
    return values.astype(x.dtype)


def run_layer(layer: QuantizedLayer, steps: Floats, parameters: Sequence[Floats], codes: CodesAttr | None) -> Floats:
    """Return values [..., N] for inputs code - zero [..., K], or code - zero where `codes` say to what to round."""
    weight, bias, multiplier = parameters
    # integers of up to 53 bits are doubles, whose products are fast; sums wrap around as those of 32 bits do
    sums = (steps.astype(np.float64) @ weight.astype(np.float64) + bias).astype(np.int64)
    totals = sums.astype(np.int32).astype(np.float32)
    if codes is not None:
        return _next_steps(layer, totals, multiplier.astype(np.float32), codes)
    values = totals * multiplier.astype(np.float32)
    return values if layer.activation is None else activate(layer.activation, values)


def _run_dynamic(layer: QuantizedLayer, x: Floats, parameters: Sequence[Floats]) -> Floats:
    return run_dynamic_layer(layer, *dynamic_steps(x), parameters)


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


def rounds_sums(layer: QuantizedLayer) -> bool:
    """Return whether the sums of a layer are rounded to codes by one multiplication."""
    return layer.activation is None or layer.activation.kind == "relu"


def _next_steps(layer: QuantizedLayer, totals: Floats, multiplier: Floats, codes: CodesAttr) -> Floats:
    if rounds_sums(layer):
        steps = codes.steps(np.multiply(totals, multiplier / np.float32(codes.scale), dtype=np.float32))
        return steps if layer.activation is None else np.maximum(steps, 0)
    values = totals * multiplier
    assert layer.activation is not None
    return codes.steps(activate(layer.activation, values) / np.float32(codes.scale))


def constant_steps(layer: QuantizedLayer, bias: Floats, multiplier: Floats, codes: CodesAttr) -> Floats:
    """Return code - zero of the neurons of a layer whose sums are its biases, for the codes of the next layer."""
    return _next_steps(layer, bias.astype(np.float32), multiplier.astype(np.float32), codes)
