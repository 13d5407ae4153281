"""The program of one rank: its module, and the steps in which functions and messages follow each other.

For a chain of layers, per layer and batch tile: send the rows that others need; compute those neurons that need no row
of others meanwhile; wait for the rows of others; compute the rest. (SpFF of Demirci and Ferhatosmanoglu, ICS 2021,
abstract read, multiplies all own rows meanwhile and adds the products of what arrives; here a neuron's sum is one
piece, since adding to sums in memory takes longer than the tiles in flight leave to wait for.) Where a batch has tiles
for all slots, another tile computes meanwhile, and a layer stays in one piece: kernels of few neurons take longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from ..graph.ownership import Ownership
from .rank_functions import Computation, Exchange, Key, RankFunction, build_function
from .rank_schedule import Entry, RankSchedule
from .steps import Buffer, BufferRow, Call, Indices, Receive, Route, Send, Step


@dataclass(frozen=True)
class RankProgram:
    """A module without kernels chosen, the buffers its functions work on, and the steps."""

    module: ModuleOp
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    inputs: tuple[Indices, ...]
    """The features of each input of the network that the rank reads."""
    outputs: tuple[Indices, ...]
    """The features of each output of the network that the rank writes."""


def rank_program(ownership: Ownership, rank: int, *, overlap: bool = True) -> RankProgram:
    """Return the program of part `rank`; without `overlap` a layer waits for everything it needs."""
    return _Assembly(RankSchedule(ownership, rank, overlap=overlap)).program()


class _Assembly:
    """Steps under construction."""

    def __init__(self, schedule: RankSchedule) -> None:
        self.schedule, self.ownership, self.rank = schedule, schedule.ownership, schedule.rank
        self.parts = _functions(schedule.entries())
        self.views = schedule.views
        self.numbers: dict[Key, int] = {}
        self.buffers: list[Buffer] = []

    def program(self) -> RankProgram:
        """Return the program."""
        functions: list[FuncOp] = []
        steps: list[Step] = []
        for index, part in enumerate(self.parts):
            if isinstance(part, Exchange):
                steps.append(self._exchange(part))
                continue
            results = [key for key in part.writes if key.kind == "output" or self._is_read_after(index, key)]
            if not results:
                continue
            name = f"run{len(functions)}"
            functions.append(build_function(name, part, results, self.views))
            steps.append(Call(name, tuple(self._start(key) for key in (*part.reads, *results))))
        graph = self.ownership.graph
        return RankProgram(
            ModuleOp(list(functions)),
            tuple(self.buffers),
            tuple(steps),
            tuple(self.ownership.own(port.value, self.rank) for port in graph.inputs),
            tuple(self.schedule.own_order(port.value) for port in graph.outputs),
        )

    def _is_read_after(self, index: int, key: Key) -> bool:
        """Return whether a later step reads what step `index` computes, or rows of the same buffer."""
        buffer = self.views[key].buffer
        return any(
            any(self.views[read].buffer == buffer for read in part.reads)
            if isinstance(part, RankFunction)
            else part.is_send and self.views[part.key].buffer == buffer
            for part in self.parts[index + 1 :]
        )

    def _start(self, key: Key) -> BufferRow:
        """Return where some features begin."""
        view = self.views[key]
        if view.buffer not in self.numbers:
            self.numbers[view.buffer] = len(self.buffers)
            kind = key.kind if key.is_row_major or key.kind == "zeros" else "blocks"
            self.buffers.append(Buffer(view.height, kind, key.number if key.is_row_major else -1))
        return BufferRow(self.numbers[view.buffer], view.first)

    def _exchange(self, exchange: Exchange) -> Step:
        number = exchange.key.number
        value: SSAValue = self.schedule.values[number]
        buffer, first = self._start(exchange.key)
        routes = list[Route]()
        if exchange.is_send:
            own = self.schedule.own_order(value)
            row = np.empty(int(own.max()) + 1, dtype=np.int64)
            row[own] = np.arange(len(own))
            for other, features in self.ownership.sent(value, self.rank).items():
                routes.append(Route(other, row[features]))
            return Send(number, buffer, tuple(routes))
        for other, features in self.ownership.received(value, self.rank).items():
            routes.append(Route(other, np.arange(first, first + len(features), dtype=np.int64)))
            first += len(features)
        return Receive(number, buffer, tuple(routes))


def _functions(sequence: Sequence[Entry]) -> list[RankFunction | Exchange]:
    """Return the sequence with the computations between two exchanges joined."""
    parts: list[RankFunction | Exchange] = []
    pending: list[Computation] = []
    for entry in sequence:
        if isinstance(entry, Computation):
            pending.append(entry)
            continue
        if pending:
            parts.append(RankFunction(tuple(pending)))
            pending = []
        if isinstance(entry, Exchange):
            parts.append(entry)
    return [*parts, RankFunction(tuple(pending))] if pending else parts
