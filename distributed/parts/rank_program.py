"""The program of one rank: its module, and its steps, functions and messages in order.

For a chain of layers, per layer and batch tile: send the rows that others need; meanwhile compute the neurons that need
no remote row; wait for the remote rows; compute the rest. (SpFF of Demirci and Ferhatosmanoglu, ICS 2021,
abstract read, multiplies all own rows meanwhile and adds the products of the arriving rows; here a neuron's sum is one
piece, since adding to sums in memory takes longer than the tiles in flight leave to wait for.) Where a batch has tiles
for all slots, another tile computes meanwhile, and a layer stays in one piece: kernels of few neurons take longer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import IntAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.codes import CodesAttr, codes_in
from ...dialect.ops.constants import ConstantOp, constant_array, is_constant
from ...dialect.ops.elementwise import ConvertOp
from ...dialect.ops.layers import LayerNormOp, LinearOp, RmsNormOp
from ...dialect.ops.movement import SplitOp
from ...passes.analysis.weights import Weight, constant_for
from ..graph.ownership import Ownership, operands_of, weight_for
from ..graph.row_graph import features_of
from .module_text import OWN, TRAINED
from .rank_functions import Computation, Exchange, FunctionEnd, Key, RankFunction, View, build_function
from .steps import Buffer, BufferRow, Call, Indices, Receive, Route, Send, Step
from .sub_weights import nothing, permutation, sub_weight, uses

# The computations and exchanges of one rank in their order, before those between two messages are joined.

WHOLE_ROWS: Final = 16
"""A computation that shares a buffer ends at a multiple of so many rows, as the share of a thread does."""

Emitted = tuple[Sequence[Operation], Sequence[SSAValue]]
Entry = Computation | Exchange | FunctionEnd


class _Source(NamedTuple):
    """Inputs of neurons: the features of the layer's input, and the key of the buffer rows that hold them."""

    key: Key
    rows: Indices


@dataclass(frozen=True)
class _Neurons:
    """Some neurons of a layer: their weights, biases and activation."""

    weight: Weight
    bias: NDArray[np.float32] | None
    activation: ActivationAttr | None
    trained: bool = True
    multiplier: NDArray[np.float32] | None = None
    """Factors of the sums of codes."""
    codes: CodesAttr | None = None
    """The codes that results are rounded to."""

    def emit(self, read: Sequence[SSAValue]) -> Emitted:
        """Return the layer on the one value read, with its constants."""
        constant = constant_for(self.weight)
        bias = [ConstantOp(self.bias)] if self.bias is not None else []
        for one in (constant, *bias) if self.trained else ():
            one.attributes[TRAINED] = IntAttr(OWN)
        times = [ConstantOp(self.multiplier)] if self.multiplier is not None else []
        added, factors = (one[0].result if one else None for one in (bias, times))
        linear = LinearOp(read[0], constant.result, added, self.activation, factors, self.codes)
        return [constant, *bias, *times, linear], [linear.result]


class RankSchedule:
    """Steps of part `rank`: computation and exchange; values are numbered alike on all ranks.

    With `overlap` neurons that need nothing of others come before the wait for that.
    """

    def __init__(self, ownership: Ownership, rank: int, *, overlap: bool) -> None:
        self.ownership, self.rank, self._overlap = ownership, rank, overlap
        self.graph = ownership.graph
        inputs, results = (port.value for port in self.graph.inputs), (r for op in self.graph.ops for r in op.results)
        self.values: list[SSAValue] = list(dict.fromkeys((*inputs, *results)))
        self.numbers = {value: number for number, value in enumerate(self.values)}
        self.views: dict[Key, View] = {}
        self._entries: list[Entry] = []
        self._arrived: set[SSAValue] = set()
        self._gathered: set[SSAValue] = set()
        self._orders: dict[SSAValue, Indices] = {}

    def entries(self) -> list[Entry]:
        """Return all computations and exchanges."""
        for index, port in enumerate(self.graph.inputs):
            if len(self.own_order(port.value)):
                source = self._whole_buffer("input", index, len(self.own_order(port.value)))
                self._add((source,), (self._rows_of(port.value, "own"),), lambda read: ((), read))
                self._send(port.value)
        for op in self.graph.ops:
            if isinstance(op, LinearOp):
                self._linear(op)
            elif isinstance(op, ConvertOp) and self.ownership.is_cut(op.result):
                self._convert(op)
            elif self.ownership.executed[op][self.rank]:
                self._whole(op)
        for index, port in enumerate(self.graph.outputs):
            self._output(index, port.value)
        return self._entries

    def own_order(self, value: SSAValue) -> Indices:
        """Return the features of a value that are this rank's, in the order in which they lie here."""
        if value not in self._orders:
            self._orders[value] = self.ownership.own(value, self.rank)
        return self._orders[value]

    def _received(self, value: SSAValue) -> Indices:
        """Return the features of a cut value that arrive, in the order in which they lie here."""
        routes = self.ownership.received(value, self.rank)
        return np.concatenate([np.zeros(0, dtype=np.int64), *routes.values()])

    def _whole_buffer(self, kind: str, number: int, features: int, codes: CodesAttr | None = None) -> Key:
        """Return the key of something that has a buffer of its own."""
        key = Key(kind, number)
        self.views[key] = View(key, 0, features, features, codes)
        return key

    def _whole_value(self, value: SSAValue) -> Key:
        """Return the key of all features of a value."""
        return self._whole_buffer("whole", self.numbers[value], features_of(value), codes_in(value.type))

    def _zeros(self, value: SSAValue) -> Key:
        """Return the key of a feature for layers on a value that need none of it."""
        codes = codes_in(value.type)
        return self._whole_buffer("zeros", 0 if codes is None else self.numbers[value], 1, codes)

    def _rows_of(self, value: SSAValue, kind: str, inner: int = 0) -> Key:
        """Return the key of features of a cut value, which share a buffer."""
        own, received = len(self.own_order(value)), len(self._received(value))
        first, features = {
            "own": (0, own),
            "inner": (0, inner),
            "border": (inner, own - inner),
            "received": (own, received),
            "near": (0, own + received),
        }[kind]
        number = self.numbers[value]
        key = Key(kind, number)
        self.views[key] = View(Key("near", number), first, features, own + received, codes_in(value.type))
        return key

    def _add(
        self, reads: tuple[Key, ...], writes: tuple[Key, ...], emit: Callable[[Sequence[SSAValue]], Emitted]
    ) -> None:
        self._entries.append(Computation(reads, writes, emit))

    def _send(self, value: SSAValue) -> None:
        if self.ownership.sent(value, self.rank):
            self._entries.append(Exchange(self._rows_of(value, "own"), is_send=True))

    def _wait(self, value: SSAValue) -> None:
        """Add the wait for the features of a value that others own, once."""
        if value not in self._arrived and len(self._received(value)):
            self._entries.append(Exchange(self._rows_of(value, "received"), is_send=False))
        self._arrived.add(value)

    def _linear(self, op: LinearOp) -> None:
        if not len(self.own_order(op.result)):
            return
        source = self.graph.source(op.x)
        if not self.ownership.is_cut(source):
            rows = np.arange(features_of(source))
            read = _Source(self._whole_value(source), rows)
            self._neurons(op, read, "own")
        elif self._overlap and source not in self._arrived and len(self._received(source)):
            self._inner_and_border(op, source)
        else:
            self._wait(source)
            self._all_neurons(op, source)
        self._send(op.result)

    def _convert(self, op: ConvertOp) -> None:
        """Add the rounding of own features to codes, or the values of their codes; others get what this yields."""
        source, codes = self.graph.source(op.x), codes_in(op.result.type)
        self._orders[op.result] = self.own_order(source)
        if not len(self.own_order(source)):
            return

        def emit(read: Sequence[SSAValue]) -> Emitted:
            copy = ConvertOp(read[0], codes)
            return [copy], [copy.result]

        self._add((self._rows_of(source, "own"),), (self._rows_of(op.result, "own"),), emit)
        self._send(op.result)

    def _all_neurons(self, op: LinearOp, source: SSAValue) -> None:
        """Add all own neurons of a layer, whose inputs are here."""
        rows = np.concatenate((self.own_order(source), self._received(source)))
        if len(rows):
            key = self._rows_of(source, "near" if len(self._received(source)) else "own")
            self._neurons(op, _Source(key, rows), "own")
            return
        self._neurons(op, _Source(self._zeros(source), rows), "own")

    def _inner_and_border(self, op: LinearOp, source: SSAValue) -> None:
        """Add the neurons that need no received feature, the wait, and then the others; both lie in one buffer."""
        own, received = self.own_order(op.result), self._received(source)
        border = uses(weight_for(op), received, own)
        if border.any():
            # kernels write whole vectors: what lies behind the inner neurons has to begin at one
            border[np.flatnonzero(~border)[(~border).sum() // WHOLE_ROWS * WHOLE_ROWS :]] = True
        self._orders[op.result] = np.concatenate((own[~border], own[border]))
        inner, mine = int((~border).sum()), self.own_order(source)
        if inner:
            key = self._rows_of(source, "own") if len(mine) else self._zeros(source)
            self._neurons(op, _Source(key, mine), "inner" if border.any() else "own", inner)
        if border.any():
            self._wait(source)
            rows = np.concatenate((mine, received))
            self._neurons(op, _Source(self._rows_of(source, "near"), rows), "border" if inner else "own", inner)
            # whoever reads all own features reads them from the buffer that both computations have written to
            self._entries.append(FunctionEnd())

    def _neurons(self, op: LinearOp, source: _Source, kind: str, inner: int = 0) -> None:
        """Add some of the own neurons of a layer."""
        key, rows = source
        order = self.own_order(op.result)
        columns = {"own": order, "inner": order[:inner], "border": order[inner:]}[kind]
        weight = sub_weight(weight_for(op), rows, columns) if key.kind != "zeros" else nothing(len(columns))
        bias = None if op.bias is None else constant_array(op.bias)
        times = None if op.times is None else constant_array(op.times)
        neurons = _Neurons(
            weight,
            None if bias is None else bias[columns],
            op.activation,
            trained=times is None,
            multiplier=None if times is None else times[columns],
            codes=codes_in(op.result.type),
        )
        self._add((key,), (self._rows_of(op.result, kind, inner),), neurons.emit)

    def _gather(self, value: SSAValue) -> Key:
        """Return the key of a value as a whole; a cut one is put together from own and received features."""
        whole = self._whole_value(value)
        if self.ownership.is_cut(value) and value not in self._gathered:
            self._wait(value)
            rows = np.concatenate((self.own_order(value), self._received(value)))
            neurons = _Neurons(permutation(rows, features_of(value)), None, None, trained=False)
            key = self._rows_of(value, "near" if len(self._received(value)) else "own")
            self._add((key,), (whole,), neurons.emit)
            self._gathered.add(value)
        return whole

    def _whole(self, op: Operation) -> None:
        operands = operands_of(self.graph, op)
        reads = tuple(self._gather(operand) for operand in operands)
        writes = tuple(self._whole_value(result) for result in op.results)

        def emit(read: Sequence[SSAValue]) -> Emitted:
            known = dict(zip(operands, read, strict=True))
            constants = {operand: operand.owner for operand in op.operands if is_constant(operand)}
            copies = {value: owner.clone() for value, owner in constants.items() if isinstance(owner, Operation)}
            for place, operand in enumerate(op.operands[1:] if isinstance(op, LayerNormOp | RmsNormOp) else ()):
                if operand in copies:
                    # every rank that computes the op has them
                    number = 2 * self.graph.ops.index(op) + place
                    copies[operand].attributes[TRAINED] = IntAttr(number)
            values = [
                copies[operand].results[0] if operand in copies else known[self.graph.source(operand)]
                for operand in op.operands
            ]
            copy = op.create(
                operands=values,
                result_types=[result.type for result in op.results],
                properties=dict(op.properties),
                attributes=dict(op.attributes),
            )
            return [*copies.values(), copy], copy.results

        self._add(reads, writes, emit)

    def _output(self, index: int, value: SSAValue) -> None:
        """Add the columns of an output that this rank owns."""
        own = self.own_order(value)
        if not len(own):
            return
        key = self._whole_buffer("output", index, len(own))
        if self.ownership.is_cut(value):
            self._add((self._rows_of(value, "own"),), (key,), lambda read: ((), read))
            return
        count = features_of(value)
        sizes = [int(own[0]), len(own), count - int(own[-1]) - 1]

        def emit(read: Sequence[SSAValue]) -> Emitted:
            if len(own) == count:
                return (), read
            split = SplitOp(read[0], 1, [size for size in sizes if size])
            return [split], [split.parts[1 if sizes[0] else 0]]

        self._add((self._gather(value),), (key,), emit)


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
        view = self.views[key]
        if view.buffer not in self.numbers:
            self.numbers[view.buffer] = len(self.buffers)
            kind = key.kind if key.is_row_major or key.kind == "zeros" else "blocks"
            zero = None if view.codes is None else view.codes.zero & 0xFF
            self.buffers.append(Buffer(view.height, kind, key.number if key.is_row_major else -1, zero))
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
