"""The steps of a network as a stream of packed words: runs of equal work, each behind a head that says what it is.

Words are u32; a head is [kind, count, operand], and `count` entries follow it:

* `LOAD_BIASES`: [slot, bias as f32] each; `LOAD_ROWS`: [slot, buffer, row]; `STORE_ROWS`: [slot, buffer, row];
* `SUM`: the operand is a target's slot, [source's slot, weight as f32] each; `SPREAD`: the operand is a source's slot,
  [target's slot, weight as f32] each;
* `ACTIVATE_FIRST` + k: [slot] each, for activation k of the op; `END`: the stream is done.

Buffers hold slow memory: first the operands, then the results, then one for all other neurons. Steps stand in their
order and no run joins steps with others between them, so loads, connections and stores happen as they were planned.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...dialect.attributes.memory_steps import ACTIVATE, CONNECT, LOAD_BIAS, LOAD_ROW, STORE_ROW
from ...dialect.ops.network import NetworkOp
from ...dialect.tensors import indices_of, shape_of

END: Final = 0
LOAD_BIASES: Final = 1
LOAD_ROWS: Final = 2
STORE_ROWS: Final = 3
SUM: Final = 4
SPREAD: Final = 5
ACTIVATE_FIRST: Final = 6

HEAD_WORDS: Final = 3
ENTRY_WORDS: Final = {LOAD_BIASES: 2, LOAD_ROWS: 3, STORE_ROWS: 3, SUM: 2, SPREAD: 2, ACTIVATE_FIRST: 1}
"""Words of an entry; those of all activations are as long as the first one's."""

Step = tuple[int, int, int, int]
"""Kind, slot, other slot and number, as in the op."""


class WorkingRows(NamedTuple):
    """Rows of a tile that a network needs beside its operands and results."""

    slots: int
    """Fast memory."""
    spilled: tuple[int, ...]
    """Neurons that go to slow memory and are no outputs, one row each."""

    @property
    def total(self) -> int:
        """Rows altogether."""
        return self.slots + len(self.spilled)


def working_rows(op: NetworkOp) -> WorkingRows:
    """Return the rows that the steps of `op` need.

    Raises:
        ValueError: the op has no steps.
    """
    if op.steps is None:
        raise ValueError("pebble.network has no steps, pebble-plan-steps writes them")
    steps = indices_of(op.steps)
    stored = np.unique(steps[steps[:, 0] == STORE_ROW, 3])
    spilled = np.setdiff1d(stored, op.graph.outputs)
    return WorkingRows(int(steps[:, 1:3].max(initial=0)) + 1, tuple(spilled.tolist()))


def pack_stream(op: NetworkOp) -> NDArray[np.uint32]:
    """Return the stream [words] of an op with steps."""
    return _Packing.of(op).stream()


@dataclass(frozen=True)
class _Packing:
    """The graph and the steps that the words are made from."""

    steps: list[Step]
    rows: dict[int, tuple[int, int]]
    """Neuron -> buffer and row of slow memory."""
    input_count: int
    biases: list[int]
    """Bits of the biases, likewise the weights."""
    weights: list[int]
    activation_of: list[int]

    @staticmethod
    def of(op: NetworkOp) -> "_Packing":
        spilled = working_rows(op).spilled
        widths = [shape_of(value)[-1] for value in (*op.inputs, *op.outputs)]
        rows = [(buffer, row) for buffer, width in enumerate(widths) for row in range(width)]
        rows += [(len(widths), row) for row in range(len(spilled))]
        network = op.weighted_graph
        neurons = [*range(op.input_count), *network.graph.outputs.tolist(), *spilled]
        assert op.steps is not None
        return _Packing(
            [tuple(step) for step in indices_of(op.steps).tolist()],
            dict(zip(neurons, rows, strict=True)),
            op.input_count,
            network.biases.view(np.uint32).tolist(),
            network.weights.view(np.uint32).tolist(),
            network.activation_of.tolist(),
        )

    def stream(self) -> NDArray[np.uint32]:
        """Return all runs, and the end."""
        words: list[int] = []
        for kind, group in groupby(self.steps, key=self._kind):
            same = list(group)
            runs = _connection_runs(same) if kind == SUM else [(kind, 0, same)]
            for run_kind, operand, steps in runs:
                words += [run_kind, len(steps), operand]
                for step in steps:
                    words += self._entry(run_kind, step)
        return np.array([*words, END, 0, 0], dtype=np.uint32)

    def _kind(self, step: Step) -> int:
        """Return the kind of run that a step belongs to."""
        match step[0]:
            case kind if kind == ACTIVATE:
                return ACTIVATE_FIRST + self.activation_of[step[3] - self.input_count]
            case kind:
                return {LOAD_BIAS: LOAD_BIASES, LOAD_ROW: LOAD_ROWS, STORE_ROW: STORE_ROWS, CONNECT: SUM}[kind]

    def _entry(self, kind: int, step: Step) -> Sequence[int]:
        _, slot, other_slot, number = step
        if kind == LOAD_BIASES:
            return slot, self.biases[number - self.input_count]
        if kind in (LOAD_ROWS, STORE_ROWS):
            return slot, *self.rows[number]
        if kind in (SUM, SPREAD):
            return slot if kind == SUM else other_slot, self.weights[number]
        return (slot,)


def _connection_runs(steps: Sequence[Step]) -> Iterator[tuple[int, int, Sequence[Step]]]:
    """Cut connections into runs of one target or one source, whichever goes further."""
    targets, sources = _run_ends([step[2] for step in steps]), _run_ends([step[1] for step in steps])
    start = 0
    while start < len(steps):
        if targets[start] >= sources[start]:
            yield SUM, steps[start][2], steps[start : targets[start]]
            start = targets[start]
        else:
            yield SPREAD, steps[start][1], steps[start : sources[start]]
            start = sources[start]


def _run_ends(values: Sequence[int]) -> list[int]:
    """Return for each index the first one behind it with another value."""
    ends = [len(values)] * len(values)
    for index in range(len(values) - 2, -1, -1):
        if values[index] != values[index + 1]:
            ends[index] = index + 1
        else:
            ends[index] = ends[index + 1]
    return ends
