"""A step of training on the parts of a network: SpFF there, SpBP back (Demirci and Ferhatosmanoglu, ICS 2021).

Forward, ranks run their functions and send each other the values that remote neurons read. Backward, all steps run in
the opposite order: a function computes the gradients of its inputs and weights, the receiver of a value returns its
share of the value's gradient, and the sender adds the shares up. The same rows travel the same routes in the opposite
direction, except inputs of the network, which need no gradient. Weights stay where they are.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...training.steps import Batch
from ..parts.steps import Call, Receive, Route, Send
from .messages import Message
from .part_code import PartCode
from .pieces import Piece
from .trained_function import TrainedFunction, bound

Floats = NDArray[np.float32]


class PartStep(PartCode):
    """The step of one rank, which all ranks run together."""

    def bind(self, feeds: Mapping[str, Floats], target: Floats) -> Batch:
        """Return the step for arrays of a batch, which are read at each run."""
        return BoundPart(self, feeds, target).batch()


# The arrays of a batch on one rank, and what is done with them, step by step, forward and back.

Do = Callable[[], object]


class BoundPart:
    """The arrays of a batch, and what is done with them in order."""

    def __init__(self, code: PartCode, feeds: Mapping[str, Floats], target: Floats) -> None:
        """Make the arrays, and bind all calls to them; all ranks do it together."""
        self.code, self.part, self.wire = code, code.part, code.wire
        self.feeds, self.rows = feeds, len(target)
        self.values = {piece: self._empty(piece) for piece in code.pieces}
        self.gradients = {piece: self._empty(piece) for piece in code.active}
        self.filled = set[Piece]()
        self.outputs = np.zeros((self.rows, code.features), np.float32)
        self.output_gradient = np.zeros_like(self.outputs)
        names = [tensor.name for tensor in code.loss.program.inputs]
        loss = code.loss.bind(
            dict(zip(names, (self.outputs, target), strict=True)),
            {code.loss.program.outputs[0].name: self.output_gradient},
        )
        forward = [do for one in self.part.steps for do in self._forward(one)]
        begin = self._output_gradients()
        backward = [do for one in reversed(self.part.steps) for do in self._backward(one)]
        gather = self._gathering()
        self.all: list[Do] = [self._take_inputs, *forward, gather, loss.run, begin, *backward, self._end]
        self.shared = self._shared_layout()

    def batch(self) -> Batch:
        """Return the step."""

        def run() -> None:
            for do in self.all:
                do()

        return Batch(run, self.outputs)

    def _empty(self, piece: Piece) -> Floats:
        return np.zeros((self.rows, piece.features), np.float32)

    def _pieces_of(self, kind: str) -> list[tuple[Piece, int]]:
        """Return the pieces of inputs or outputs, and the numbers of these."""
        buffers = self.part.buffers
        return [(one, buffers[one.buffer].port) for one in self.values if buffers[one.buffer].kind == kind]

    def _take_inputs(self) -> None:
        for piece, port in self._pieces_of("input"):
            own = self.part.inputs[port][piece.first : piece.first + piece.features]
            np.take(self.feeds[self.code.tensors[port].name], own, axis=1, out=self.values[piece], mode="clip")

    def _gathering(self) -> Do:
        """Return the step that gathers the outputs of all ranks."""
        comm, own = self.code.comm, self.part.outputs[0]
        columns: list[NDArray[np.int64]] = comm.allgather(np.array(own))
        sent = np.empty((self.rows, len(own)), np.float32)
        received = [np.empty((self.rows, len(each)), np.float32) for each in columns]
        memory = np.empty(sum(each.size for each in received), np.float32)
        counts = [each.size for each in received]
        ends = np.cumsum([0, *counts])
        received = [
            memory[start:end].reshape(self.rows, -1) if end > start else memory[:0].reshape(self.rows, 0)
            for start, end in pairwise(ends.tolist())
        ]
        pieces = self._pieces_of("output")

        def gather() -> None:
            for piece, _ in pieces:
                sent[:, piece.first : piece.first + piece.features] = self.values[piece]
            comm.Allgatherv(sent, [memory, counts])
            self.wire.bytes_sent.outputs += sent.nbytes * (comm.size - 1)
            for each, chunk in zip(columns, received, strict=True):
                self.outputs[:, each] = chunk

        return gather

    def _output_gradients(self) -> Do:
        own = self.part.outputs[0]
        pieces = [piece for piece, _ in self._pieces_of("output") if piece in self.gradients]
        self.filled |= {*pieces}

        def begin() -> None:
            for piece in pieces:
                chosen = own[piece.first : piece.first + piece.features]
                np.take(self.output_gradient, chosen, axis=1, out=self.gradients[piece], mode="clip")

        return begin

    def _forward(self, step: Call | Send | Receive) -> list[Do]:
        if isinstance(step, Call):
            function = self.code.functions[step.function]
            arrays = [self.values[piece] for piece in (*function.reads, *function.writes)]
            return [bound(function.forward, arrays[: len(function.reads)], arrays[len(function.reads) :]).run]
        messages = [self._message(step, route, self.values) for route in step.routes]
        tag, kind = 2 * step.tag, "inputs" if step.tag < self.code.input_count else "forward"
        return [self._sending(messages, tag, kind) if isinstance(step, Send) else self._receiving(messages, tag)]

    def _backward(self, step: Call | Send | Receive) -> list[Do]:
        if isinstance(step, Call):
            return self._call_back(self.code.functions[step.function])
        if step.tag < self.code.input_count:
            return []
        for route in step.routes:
            for one in self.code.pieces.columns(step.buffer, route.rows):
                if one.piece not in self.gradients:
                    self.gradients[one.piece] = self._empty(one.piece)
        if isinstance(step, Receive):
            messages = [self._message(step, route, self.gradients) for route in step.routes]
            return [self._sending(messages, 2 * step.tag + 1, "backward")]
        # what arrives is added: never in the array itself
        messages = [self._message(step, route, self.gradients, apart=True) for route in step.routes]
        pieces = {one.piece for message in messages for one in message.columns}
        cleared = [self.gradients[piece] for piece in pieces - self.filled]
        self.filled |= pieces

        def add() -> None:
            for array in cleared:
                array.fill(0)
            self.wire.receive([one.buffer for one in messages], [one.rank for one in messages], 2 * step.tag + 1)
            for message in messages:
                message.add()

        return [add]

    def _message(
        self, step: Send | Receive, route: Route, arrays: Mapping[Piece, Floats], *, apart: bool = False
    ) -> Message:
        columns = self.code.pieces.columns(step.buffer, route.rows)
        return Message.of(route.rank, [arrays[one.piece] for one in columns], columns, apart=apart)

    def _sending(self, messages: Sequence[Message], tag: int, kind: str) -> Do:
        def send() -> None:
            for message in messages:
                message.pack()
                self.wire.send(message.buffer, message.rank, tag, kind)

        return send

    def _receiving(self, messages: Sequence[Message], tag: int) -> Do:
        def receive() -> None:
            self.wire.receive([one.buffer for one in messages], [one.rank for one in messages], tag)
            for message in messages:
                message.unpack()

        return receive

    def _call_back(self, function: TrainedFunction[Piece]) -> list[Do]:
        """Return the steps that compute the gradients of a call's arguments and constants, and accumulate them."""
        if function.backward is None:
            return []
        read = [self.values[piece] for piece in (*function.reads, *function.writes)]
        read += [self.gradients[piece] for piece in function.writes]
        written, added = list[Floats](), list[tuple[Floats, Floats]]()
        for piece in function.wanted:
            if piece in self.filled:
                written.append(self._empty(piece))
                added.append((self.gradients[piece], written[-1]))
            else:
                self.filled.add(piece)
                written.append(self.gradients[piece])
        call = bound(function.backward, read, [*written, *self.code.gradients_of(function)])

        def run() -> None:
            call.run()
            for total, found in added:
                np.add(total, found, out=total)

        return [run]

    def _shared_layout(self) -> list[tuple[slice, slice]]:
        """Return where gradients of constants lie that several ranks hold: here, and in what all ranks add up."""
        here = dict(self.code.shared())
        sizes: dict[int, int] = {}
        for one in self.code.comm.allgather({number: own.stop - own.start for number, own in here.items()}):
            sizes |= one
        layout, start = list[tuple[slice, slice]](), 0
        for number, size in sorted(sizes.items()):
            if number in here:
                layout.append((here[number], slice(start, start + size)))
            start += size
        self.total = np.zeros(start, np.float32)
        return layout

    def _end(self) -> None:
        """Wait for messages, and add up what several ranks have found of the same constants."""
        self.wire.finish()
        if not len(self.total):
            return
        from mpi4py import MPI

        comm = self.code.comm
        self.total.fill(0)
        for own, place in self.shared:
            self.total[place] = self.code.gradient[own]
        comm.Allreduce(MPI.IN_PLACE, self.total, MPI.SUM)
        for own, place in self.shared:
            self.code.gradient[own] = self.total[place]
        self.wire.bytes_sent.shared += 2 * (comm.size - 1) * self.total.nbytes // comm.size
