"""Dense kernel family for one row of activations: panels of output neurons whose weights stand input by input.

A panel holds the sums of its neurons in registers and adds x[k] times one row of its weights for every input k, so all
weights are read once, in the order in which they lie in memory: the time is that of reading them.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.lowering.emission import FLOAT, I64, POINTER, Code, counted_loop, float_at, i64, reduce_loop
from redpebble.lowering.linear import LinearForm, PackedArrays, activated, dense_weight
from redpebble.lowering.single_row import single_row_key

PANEL: Final = 32
"""Neurons: with four rows of weights at once 8 registers of AVX-512, with two 8 of AVX2, with one 8 of SSE."""
LAST_PANEL: Final = 16
"""Neurons of a panel where no more are left, so that few neurons cost little."""
SUMS: Final = 8
"""Registers of sums: enough chains of multiply-adds to hide their latency."""


class DenseRows:
    """Panels of 32 neurons and perhaps one of 16: weights f32 [K, panel] each, and biases f32, padded with zeros."""

    def pack(self, weight: SSAValue, bias: NDArray[np.float32]) -> PackedArrays:
        """Return the panels, one after the other, and the biases."""
        dense = dense_weight(weight)
        padding = -dense.shape[1] % LAST_PANEL
        padded = np.pad(dense, ((0, 0), (0, padding)))
        whole = padded.shape[1] // PANEL
        panels = padded[:, : whole * PANEL].reshape(len(dense), whole, PANEL).transpose(1, 0, 2)
        return np.concatenate([panels.ravel(), padded[:, whole * PANEL :].ravel()]), np.pad(bias, (0, padding))

    def emit(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the kernel for one row of activations."""

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            groups = builder.sdiv(builder.add(args[5], i64(LAST_PANEL - 1)), i64(LAST_PANEL))
            whole = builder.sdiv(groups, i64(PANEL // LAST_PANEL))
            with counted_loop(builder, whole) as panel:
                _emit_panel(code, builder, (form, PANEL), [*args[:5], builder.mul(panel, i64(PANEL))])
            with counted_loop(builder, builder.srem(groups, i64(PANEL // LAST_PANEL))):
                _emit_panel(code, builder, (form, LAST_PANEL), [*args[:5], builder.mul(whole, i64(PANEL))])

        return code.function(single_row_key("dense_rows", form), [POINTER] * 4 + [I64, I64], body)


def _emit_panel(code: Code, builder: ir.IRBuilder, shape: tuple[LinearForm, int], values: Sequence[ir.Value]) -> None:
    """Emit a panel of some neurons; values are x, y, weights, bias, inputs, first neuron."""
    form, neurons = shape
    x, y, weights, bias, inputs, first = values
    lanes = code.lanes(builder)
    starts = range(0, neurons, lanes.width)
    panel = float_at(builder, weights, builder.mul(first, inputs))

    def multiply_add(k: ir.Value, sums: Sequence[ir.Value], count: int) -> list[ir.Value]:
        following = list(sums)
        for ahead in range(count):
            number = builder.add(k, i64(ahead))
            value = lanes.splat(builder.load(float_at(builder, x, number), typ=FLOAT))
            row = float_at(builder, panel, builder.mul(number, i64(neurons)))
            for index, start in enumerate(starts):
                weight = lanes.load(float_at(builder, row, i64(start)), 4 * lanes.width)
                target = ahead * len(starts) + index
                following[target] = lanes.fma(value, weight, following[target])
        return following

    together = max(1, SUMS // len(starts))
    biases = [lanes.load(float_at(builder, bias, builder.add(first, i64(start))), 4 * lanes.width) for start in starts]
    initial = [*biases, *[lanes.splat(0.0)] * (len(starts) * (together - 1))]
    rounds = builder.sdiv(inputs, i64(together))
    sums = reduce_loop(
        builder,
        (i64(0), rounds),
        initial,
        lambda index, carried: multiply_add(builder.mul(index, i64(together)), carried, together),
    )
    rest = builder.mul(rounds, i64(together))
    sums = reduce_loop(builder, (rest, inputs), sums, lambda k, carried: multiply_add(k, carried, 1))
    while len(sums) > len(starts):
        half = len(sums) // 2
        sums = [lanes.add(sums[index], sums[half + index]) for index in range(half)]
    for start, value in zip(starts, activated(lanes, form.activation, sums), strict=True):
        lanes.store(value, float_at(builder, y, builder.add(first, i64(start))), 4 * lanes.width)
