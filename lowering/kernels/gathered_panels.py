"""Sparse kernel family for one row of activations where there are no look-ups in registers: inputs come one by one.

A step of a panel multiplies a weight of each of its eight outputs with the input that stands beside it. A gathering
instruction takes longer than loads into the lanes of a register on the CPUs that have no AVX-512, and four 16-bit
places come with one load: there are little more than 1.5 loads a connection, which is what ends it. Vectors are of four
floats on all targets, as lanes of longer ones cannot be loaded by themselves.

Registers, for a panel of 8 outputs:

    places[q]      four 16-bit places of a half of a step in a word
    inputs[q]      x at these places                       a load, three loads into further lanes
    sums[step][q]  += inputs[q] * weights                  even and odd steps have sums of their own
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.formats.gathered_panels import PANEL, STEPS
from ..llvm.builder import Code
from ..llvm.flow import fold
from ..llvm.values import FLOAT_BYTES, I32, Floats, Ints, Longs, Number, Shorts
from ..llvm.vectors import Lanes
from .kernel_form import LinearForm, activated

WORD_PLACES: Final = 4
"""Places in a word, and floats in a vector."""

VECTORS_AT_ONCE: Final = PANEL // WORD_PLACES * STEPS
"""Vectors of steps that are done together."""


class _Streams(NamedTuple):
    """Addresses at which the next step begins."""

    inputs: Shorts
    weights: Floats


class _Sums(NamedTuple):
    """State between pairs of steps."""

    sums: list[ir.Value]
    at: _Streams


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, counts, heads, inputs, weights, inputs, outputs)` for one row of activations.

    Raises:
        ValueError: the form is for more than one.
    """
    if form.width != 1:
        raise ValueError(f"gathered_panels has code for tiles of 1 batch column, the tile has {form.width}")

    @code.kernel(f"gathered_panels_{form.key}")
    def kernel(x: Floats, y: Floats, counts: Ints, heads: Ints, streams: _Streams, _: Number, outputs: Number) -> None:
        lanes = code.lanes(x, WORD_PLACES)

        def panel(index: Number, at: _Streams) -> _Streams:
            head = heads.at(index * (2 * PANEL))
            biases = [*lanes.vectors(head.cast(Floats), PANEL // WORD_PLACES)]
            zeros = [lanes.splat(0.0)] * (VECTORS_AT_ONCE - len(biases))
            sums, after = fold(counts[index], _Sums([*biases, *zeros], at), lambda _, now: _pair(lanes, x, now))
            half = len(biases)
            totals = [lanes.add(even, odd) for even, odd in zip(sums[:half], sums[half:], strict=True)]
            _place(lanes, activated(lanes, form.activation, totals), y, head.at(PANEL))
            return after

        fold((outputs + (PANEL - 1)).quotient(PANEL), streams, panel)

    return kernel


def _pair(lanes: Lanes, x: Floats, now: _Sums) -> _Sums:
    """Return the sums after two steps."""
    sums, (inputs, weights) = now
    following: list[ir.Value] = []
    for number, total in enumerate(sums):
        values = _gathered(lanes, x, inputs.at(WORD_PLACES * number).cast(Longs)[0])
        factors = lanes.load(weights.at(WORD_PLACES * number), FLOAT_BYTES * WORD_PLACES)
        following.append(lanes.fma(values, factors, total))
    return _Sums(following, _Streams(inputs.at(STEPS * PANEL), weights.at(STEPS * PANEL)))


def _gathered(lanes: Lanes, x: Floats, places: Number) -> ir.Value:
    """Return the inputs at the four places in a word."""
    high = places >> 32
    numbers = [places & 0xFFFF, (places & 0xFFFFFFFF) >> 16, high & 0xFFFF, high >> 16]
    vector: ir.Value = ir.Constant(lanes.vector, ir.Undefined)
    for lane, number in enumerate(numbers):
        vector = lanes.builder.insert_element(vector, x[number], ir.Constant(I32, lane))
    return vector


def _place(lanes: Lanes, sums: Sequence[ir.Value], y: Floats, numbers: Ints) -> None:
    """Emit the writing of sums to their outputs, the first one last, as missing outputs have its number."""
    for lane in reversed(range(PANEL)):
        vector = sums[lane // WORD_PLACES]
        y[numbers[lane]] = lanes.builder.extract_element(vector, ir.Constant(I32, lane % WORD_PLACES))
