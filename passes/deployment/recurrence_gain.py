"""The question whether a recurrence gains by the zeros of its weights, answered by predicted times.

Inputs are multiplied for all steps of all samples at once, states for the samples of a step: both layers together have
to take less time than those of the runtime, for every length of a sequence. One of them may be dense.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ...dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from ...dialect.ops.recurrences import CELLS, RecurrenceOp
from ...dialect.symbolic_sizes import Size
from ...kernels.activation_prices import activation_us
from ...kernels.dense_work import OVERHEADS, runtime_times
from ...kernels.machine import DEFAULT_PRICES, Machine
from ...sparse.csr import CscMatrix
from ...sparse.densities import STORED_SPARSE
from ..analysis.block_choices import with_blocks
from ..analysis.layer_costs import layers_of
from ..analysis.weights import density, weight_of
from ..kernels.choose_kernels import kernel_for
from ..kernels.kernels_at_rows import CERTAIN_SHARE, NOTICED, ChosenKernels

SAMPLES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""Numbers of samples that stand for any."""

STEPS: Final = (1, 8, 100)
"""Numbers of steps that stand for any: one where states are inputs of each call."""

FEWEST: Final = 8192
"""Weights below which a step takes about as long as its calls."""

STEP_US: Final = 0.15
"""Microseconds of a step of onnxruntime's loop beside its arithmetic: 16 values, one sample took 0.6 us on Zen 1, whose
times are 3.5 times those that prices tell."""


def recurrence_gains(op: RecurrenceOp, steps: Size, samples: Size, machine: Machine) -> bool:
    """Return whether a recurrence is predicted to be faster than in onnxruntime: on the mean, and slower for none."""
    if sum(array.size for array in op.weight_arrays) < FEWEST:
        return False
    weights = list(_weights(op))
    if all(isinstance(weight.owner, ConstantOp) for pair in weights for weight in pair):
        return False
    layers = [[_kernels(weight, machine) for weight in pair] for pair in weights]
    lengths = STEPS if steps.constant is None else (steps.constant,)
    batches = SAMPLES if samples.constant is None else (samples.constant,)
    call = OVERHEADS.get(machine.prices, OVERHEADS[DEFAULT_PRICES]).call
    shares: list[float] = []
    for length in lengths:
        for batch in batches:
            if not length or not batch:
                continue
            ours, theirs = _times(op, layers, length, batch, machine)
            if ours - theirs > NOTICED * (call + theirs):
                return False
            shares.append(ours / theirs)
    return bool(shares) and sum(shares) < CERTAIN_SHARE * len(shares)


def _weights(op: RecurrenceOp) -> Iterator[tuple[SSAValue, SSAValue]]:
    """Yield the weights of inputs and of states [inputs, outputs] of each direction, as layers store them."""
    arrays = [constant_array(value) for value in (op.weight, op.recurrent)]
    weight, recurrent = (np.zeros((0, 0, 0), np.float32) if array is None else array for array in arrays)
    for pair in zip(weight, recurrent, strict=True):
        of_inputs, of_states = (_stored(np.ascontiguousarray(matrix.T)) for matrix in pair)
        yield of_inputs, of_states


def _stored(matrix: NDArray[np.float32]) -> SSAValue:
    sparse = density(matrix) < STORED_SPARSE and np.isfinite(matrix).all()
    return SparseConstantOp(CscMatrix.from_dense(matrix)).result if sparse else ConstantOp(matrix).result


def _kernels(value: SSAValue, machine: Machine) -> ChosenKernels:
    """Return the kernels of a layer by itself: steps read nothing else in between."""
    (layer,) = layers_of([value])
    weight = weight_of(value)
    assert weight is not None
    decided, times = with_blocks(layer, {}, machine, {})
    kernel = kernel_for(weight, decided, times, machine)
    return ChosenKernels(decided.inputs, decided.outputs, kernel.choices, kernel.predicted)


def _times(
    op: RecurrenceOp, layers: Sequence[Sequence[ChosenKernels]], steps: int, samples: int, machine: Machine
) -> tuple[float, float]:
    """Return the microseconds of a call here and in onnxruntime."""
    ours, theirs = 0.0, STEP_US * steps * len(layers)
    for of_inputs, of_states in layers:
        for kernels, rows, times in ((of_inputs, steps * samples, 1), (of_states, samples, steps)):
            ours += times * kernels.times([rows], machine)[rows]
            theirs += times * runtime_times(kernels.inputs, kernels.outputs, [rows], machine)[rows]
    # gates, with the sums and products between them, were measured to take as long there: 3 ns a value on Zen 1
    facts, gates = CELLS[op.kind.data], 0.0
    for number, activation in enumerate(op.activations):
        # the first activation of a direction is that of all gates but the last one
        count = 1 if number % len(facts.activations) else max(1, facts.gates - 1)
        gates += steps * samples * op.hidden * count * activation_us(activation.kind, machine)
    return ours + gates, theirs + gates
