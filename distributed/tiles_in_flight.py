"""Batch tiles on their way through a rank's steps: while one waits for rows of others, the next one computes.

A tile runs until it needs rows that have not arrived, then the next one goes on. Tile t takes slot t mod `SLOTS` on
every rank, a message's tag names value and slot, and a slot takes its tiles in order: so messages find their tile.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from redpebble.distributed.block_code import BlockCode
from redpebble.distributed.part_file import Part
from redpebble.distributed.steps import Call, Receive, Route, Send
from redpebble.distributed.traffic_report import RankReport
from redpebble.lowering.block_layout import buffer_bytes, flag_bytes, row_bytes
from redpebble.lowering.planning import Lifetime, plan_offsets
from redpebble.runtime.memory import address_of, aligned_bytes

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

SLOTS: Final = 3
"""Tiles in flight: one computes, one waits, one fills the gaps between them."""

SPIN_SECONDS: Final = 2e-4
NAP_SECONDS: Final = 5e-5
"""How long a rank that waits looks without a break, and how long it naps between two looks afterwards."""

MOST_MESSAGES: Final = 64
"""On their way from one slot when it takes its next tile."""

Floats = NDArray[np.float32]
Message = NDArray[np.uint8]


@dataclass(frozen=True)
class Flight:
    """What the tiles of one call have in common."""

    comm: "Intracomm"
    part: Part
    code: BlockCode
    tile: int
    """Samples of a tile, a multiple of the width."""
    report: RankReport


class MessagePool:
    """Memory for messages, used again and again."""

    def __init__(self) -> None:
        self._free: dict[int, list[Message]] = {}

    def take(self, size: int) -> Message:
        """Return memory for `size` bytes."""
        room = 1 << max(size - 1, 1).bit_length()
        free = self._free.setdefault(room, [])
        return free.pop() if free else aligned_bytes(room)[:room]

    def give(self, message: Message) -> None:
        """Take memory back."""
        self._free.setdefault(len(message), []).append(message)


class Slot:
    """Memory for one tile at a time, and how far it is."""

    def __init__(self, flight: Flight, number: int, pool: MessagePool) -> None:
        self._flight, self._number, self._pool = flight, number, pool
        self._memory, self._places = self._planned()
        part = flight.part
        self._tables: dict[int, NDArray[np.uint64]] = {
            index: np.array([self._address(*place) for place in step.places], dtype=np.uint64)
            for index, step in enumerate(part.steps)
            if isinstance(step, Call)
        }
        self._row_major = [
            (index, entry, part.buffers[buffer])
            for index, step in enumerate(part.steps)
            if isinstance(step, Call)
            for entry, buffer in enumerate(step.buffers)
            if part.buffers[buffer].port >= 0
        ]
        self._receives = [index for index, step in enumerate(part.steps) if isinstance(step, Receive)]
        self._sending: list[tuple[Request, Message]] = []
        self.pending: list[Request] = []
        self._messages: list[Message] = []
        self._step, self._samples = len(part.steps), 0

    def _planned(self) -> tuple[NDArray[np.uint8], list[int]]:
        """Return the memory of all buffers, and the address of each; what is dead makes room."""
        part, flight = self._flight.part, self._flight
        blocks = flight.tile // flight.code.width
        first, last = dict[int, int](), dict[int, int]()
        for index, step in enumerate(part.steps):
            for buffer in step.buffers if isinstance(step, Call) else (step.buffer,):
                first.setdefault(buffer, index)
                last[buffer] = index
        homes = [number for number, buffer in enumerate(part.buffers) if buffer.port < 0 and number in first]
        lifetimes = [
            Lifetime(
                buffer_bytes(part.buffers[number].features, blocks, flight.code.width),
                0 if part.buffers[number].place == "zeros" else first[number],
                len(part.steps) if part.buffers[number].place == "zeros" else last[number],
            )
            for number in homes
        ]
        plan = plan_offsets(lifetimes)
        memory = aligned_bytes(plan.total)
        memory[...] = 0
        places = [0] * len(part.buffers)
        for number, offset in zip(homes, plan.offsets, strict=True):
            places[number] = address_of(memory) + offset
        return memory, places

    def _address(self, buffer: int, first_row: int) -> int:
        """Return where a row of a buffer's first block lies."""
        return self._places[buffer] + first_row * row_bytes(self._flight.code.width)

    @property
    def is_done(self) -> bool:
        """Whether the tile is through."""
        return self._step == len(self._flight.part.steps)

    def start(self, inputs: Sequence[Floats], outputs: Sequence[Floats], span: tuple[int, int]) -> None:
        """Take the samples of a span."""
        begin, end = span
        self.finish_sends(MOST_MESSAGES)
        self._samples, self._step = end - begin, 0
        for index, entry, buffer in self._row_major:
            array = (inputs if buffer.place == "input" else outputs)[buffer.port]
            self._tables[index][entry] = address_of(array) + begin * buffer.features * array.itemsize
        self._post(0)

    def advance(self) -> bool:
        """Do one step; return False when it has to wait for rows of others."""
        step = self._flight.part.steps[self._step]
        match step:
            case Call():
                self._flight.code.run(step.function, self._tables[self._step], self._samples)
            case Send():
                self._send(step)
            case Receive():
                if not self.may_advance():
                    return False
                self._arrived(step)
        self._step += 1
        return True

    def may_advance(self) -> bool:
        """Return whether everything that the tile waits for has arrived."""
        return all(request.Test() for request in self.pending)

    def finish_sends(self, most: int = 0) -> None:
        """Wait until at most `most` messages of this slot are on their way: memory for them has an end."""
        while len(self._sending) > most:
            _poll(self._sending[0][0].Test)
            self._sweep()

    def _blocks(self) -> int:
        return -(-self._samples // self._flight.code.width)

    def _tag(self, number: int) -> int:
        return number * SLOTS + self._number

    def _post(self, after: int) -> None:
        """Make ready for the rows that are needed next, so that they need no copy on the way."""
        following = next((index for index in self._receives if index >= after), None)
        if following is None:
            return
        step = self._flight.part.steps[following]
        assert isinstance(step, Receive)
        self._messages = [self._pool.take(self._size(len(route.rows))) for route in step.routes]
        self.pending = [
            self._flight.comm.Irecv(message, source=route.rank, tag=self._tag(step.tag))
            for message, route in zip(self._messages, step.routes, strict=True)
        ]

    def _size(self, rows: int) -> int:
        blocks = self._blocks()
        return flag_bytes(rows, blocks) + rows * blocks * row_bytes(self._flight.code.width)

    def _send(self, step: Send) -> None:
        flight, report = self._flight, self._flight.report
        self._sweep()
        for route in step.routes:
            message = self._pool.take(self._size(len(route.rows)))
            shape = (flight.part.buffers[step.buffer].features, self._blocks())
            rows = flight.code.pack(self._places[step.buffer], route.rows, message, shape)
            flags, payload = flag_bytes(len(route.rows), shape[1]), rows * row_bytes(flight.code.width)
            request = flight.comm.Isend(message[: flags + payload], dest=route.rank, tag=self._tag(step.tag))
            self._sending.append((request, message))
            report.messages_sent += 1
            report.rows_sent += rows
            report.rows_left_out += len(route.rows) * shape[1] - rows
            report.row_bytes_sent += payload
            report.flag_bytes_sent += flags

    def _sweep(self) -> None:
        """Take back the memory of messages that have gone."""
        still: list[tuple[Request, Message]] = []
        for request, message in self._sending:
            if request.Test():
                self._pool.give(message)
            else:
                still.append((request, message))
        self._sending = still

    def _arrived(self, step: Receive) -> None:
        flight = self._flight
        features = flight.part.buffers[step.buffer].features
        messages, routes = self._messages, step.routes
        self._post(self._step + 1)
        for message, route in zip(messages, routes, strict=True):
            rows = self._unpacked(message, route, (step.buffer, features))
            flight.report.row_bytes_received += rows * row_bytes(flight.code.width)
            self._pool.give(message)

    def _unpacked(self, message: Message, route: Route, buffer: tuple[int, int]) -> int:
        number, features = buffer
        rows = (len(route.rows), int(route.rows[0]))
        return self._flight.code.unpack(message, self._places[number], rows, (features, self._blocks()))


def fly(
    flight: Flight, slots: Sequence[Slot], inputs: Sequence[Floats], outputs: Sequence[Floats], samples: int
) -> None:
    """Take all samples through the steps."""
    spans = [(begin, min(begin + flight.tile, samples)) for begin in range(0, samples, flight.tile)]
    waiting = {slot: spans[number :: len(slots)] for number, slot in enumerate(slots)}
    active = [slot for slot, own in waiting.items() if own]
    for slot in active:
        slot.start(inputs, outputs, waiting[slot].pop(0))
    while active:
        moved = False
        for slot in tuple(active):
            while not slot.is_done and slot.advance():
                moved = True
            if not slot.is_done:
                continue
            moved = True
            if waiting[slot]:
                slot.start(inputs, outputs, waiting[slot].pop(0))
            else:
                active.remove(slot)
        if active and not moved:
            started = time.perf_counter()
            _poll(lambda: any(slot.may_advance() for slot in active))
            flight.report.spent("waiting", time.perf_counter() - started)
    for slot in slots:
        slot.finish_sends()


def _poll(done: Callable[[], bool]) -> None:
    """Wait until something is done: first without a break, then with short ones, so that others may use the core."""
    started = time.perf_counter()
    while not done():
        if time.perf_counter() - started > SPIN_SECONDS:
            time.sleep(NAP_SECONDS)
