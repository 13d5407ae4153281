"""References of recurrences: LSTM, GRU and RNN step by step, as the definitions of ONNX's operators say."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..attributes.activations import ActivationAttr, Floats, activate
from ..ops.recurrences import CELLS, DIRECTIONS, Cell, RecurrenceOp, ScanOp

Array = NDArray[Any]
States = list[Floats]


def run_recurrence(op: RecurrenceOp, *operands: Array) -> Sequence[Floats]:
    """Return the states of all steps [T, D, B, H], and the last ones [D, B, H]."""
    arrays = dict(zip(op.operands, operands, strict=True))
    x, cell = arrays[op.x], op.cell
    starts = [None if value is None else arrays[value] for value in (op.start_h, op.start_c)]
    lengths = None if op.lengths is None else arrays[op.lengths]
    every: list[Floats] = []
    finals: list[States] = []
    for number, reverse in enumerate(DIRECTIONS[cell.direction]):
        parts = (op.weight, op.recurrent, op.bias, op.peepholes)
        weight, recurrent, bias, peepholes = (None if one is None else arrays[one][number] for one in parts)
        count = len(CELLS[cell.kind].activations)
        step = _step(cell, cell.activations[number * count : (number + 1) * count], recurrent, bias, peepholes)
        zeros = np.zeros((x.shape[1], op.hidden), x.dtype)
        states = [zeros if start is None else start[number] for start in starts[: CELLS[cell.kind].states]]
        assert weight is not None
        products = x @ weight.T if bias is None else x @ weight.T + bias[: len(bias) // 2]
        sequence, last = run_steps(step, products, states, lengths, reverse=reverse)
        every.append(sequence)
        finals.append(last)
    return [np.stack(every, axis=1), *(np.stack(last) for last in zip(*finals, strict=True))]


def run_scan(op: ScanOp, step: Callable[[Sequence[Array]], States], operands: Sequence[Array]) -> Sequence[Floats]:
    """Return the results of a loop whose body is run by `step`."""
    x, *rest = operands
    lengths = rest.pop() if op.lengths is not None else None
    features = [value.type.get_shape()[-1] for value in op.finals]
    zeros = [np.zeros((x.shape[1], count), x.dtype) for count in features[len(rest) :]]
    sequence, last = run_steps(
        lambda row, states: step([row, *states]), x, [*rest, *zeros], lengths, reverse=op.reverse is not None
    )
    return [sequence, *last]


def run_steps(
    step: Callable[[Floats, States], States], x: Floats, states: States, lengths: Array | None, *, reverse: bool
) -> tuple[Floats, States]:
    """Return the first state of all steps, and all states after the last one; a sample stands still behind its end."""
    sequence = np.zeros((*x.shape[:2], states[0].shape[-1]), x.dtype)
    for time in reversed(range(len(x))) if reverse else range(len(x)):
        after = step(x[time], states)
        counts = np.full((x.shape[1], 1), fill_value=True) if lengths is None else lengths[:, np.newaxis] > time
        states = [np.where(counts, new, old) for new, old in zip(after, states, strict=True)]
        sequence[time] = np.where(counts, states[0], 0)
    if lengths is not None:
        states = [np.where(lengths[:, np.newaxis] > 0, state, 0) for state in states]
    return sequence, states


def _step(
    cell: Cell,
    activations: Sequence[ActivationAttr],
    recurrent: Floats | None,
    bias: Floats | None,
    peepholes: Floats | None,
) -> Callable[[Floats, States], States]:
    assert recurrent is not None
    added = np.zeros(len(recurrent), recurrent.dtype) if bias is None else bias[len(bias) // 2 :]
    f, *others = activations

    def clipped(x: Floats) -> Floats:
        return np.clip(x, -cell.clip, cell.clip) if cell.clip else x

    def gate(activation: ActivationAttr, x: Floats) -> Floats:
        return activate(activation, clipped(x))

    def rnn(x: Floats, states: States) -> States:
        return [gate(f, x + states[0] @ recurrent.T + added)]

    def gru(x: Floats, states: States) -> States:
        (h,), (g,), hidden = states, others, len(recurrent) // 3
        z, r = (
            gate(f, x[:, part] + h @ recurrent[part].T + added[part])
            for part in (slice(0, hidden), slice(hidden, 2 * hidden))
        )
        last = slice(2 * hidden, None)
        if cell.linear_before_reset:
            new = r * (h @ recurrent[last].T + added[last])
        else:
            new = (r * h) @ recurrent[last].T + added[last]
        new = gate(g, x[:, last] + new)
        return [(1 - z) * new + z * h]

    def lstm(x: Floats, states: States) -> States:
        (h, c), (g, last) = states, others
        i, o, f_gate, new = np.split(x + h @ recurrent.T + added, 4, axis=-1)
        p_i, p_o, p_f = np.zeros((3, 1), x.dtype) if peepholes is None else np.split(peepholes, 3)
        c = gate(f, f_gate + p_f * c) * c + gate(f, i + p_i * c) * gate(g, new)
        return [gate(f, o + p_o * c) * activate(last, c), c]

    return {"rnn": rnn, "gru": gru, "lstm": lstm}[cell.kind]
