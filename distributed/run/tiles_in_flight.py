"""Batch tiles on their channel through a rank's steps: while one waits for rows of others, the next one computes.

A tile runs until it needs rows that have not arrived, or its last message has not gone, then the next one goes on. Tile
t takes slot t mod `SLOTS` on every rank, a message's tag names value and slot, and a slot takes its tiles in order: so
messages find their tile.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...lowering.buffer_packing import Lifetime, plan_offsets
from ...runtime.memory import address_of, aligned_bytes
from ..messages.channels import Channels, SlotStep, TileShape
from ..messages.transport import Incoming, Outgoing
from ..native.block_layout import buffer_bytes, flag_bytes, row_bytes
from ..parts.block_code import BlockBuffer, BlockCode
from ..parts.part_file import Part
from ..parts.steps import BufferRow, Call, Route, Send
from .rank_report import RankReport

# The steps of a slot, with everything looked up beforehand: a tile goes through hundreds of them in a millisecond.


@dataclass(frozen=True)
class SlotBuffer:
    """A buffer of a slot, the code that reads and writes it, and the report that counts its rows."""

    code: BlockCode
    report: RankReport
    values: BlockBuffer

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return row_bytes(self.code.width, self.values.values.value_bytes)


class ComputeStep:
    """Runs a function."""

    def __init__(self, code: BlockCode, function: str, table: NDArray[np.uint64]) -> None:
        """Take the table of addresses that the function gets."""
        self._run, self._table, self._address = code.runner(function), table, address_of(table)

    def may_run(self) -> bool:
        """Return True."""
        return True

    def run(self, samples: int) -> None:
        """Run it."""
        self._run(self._address, samples)


class SendStep:
    """Sends rows of a buffer."""

    def __init__(self, buffer: SlotBuffer, routes: Iterable[Route], channels: Sequence[Outgoing]) -> None:
        """Take the channels of the routes."""
        self._buffer, self._channels = buffer, channels
        self._rows = [np.ascontiguousarray(route.rows) for route in routes]

    def may_run(self) -> bool:
        """Return whether the last messages have gone."""
        return all(channel.may_send() for channel in self._channels)

    def run(self, samples: int) -> None:
        """Pack and send."""
        code = self._buffer.code
        blocks = -(-samples // code.width)
        for channel, rows in zip(self._channels, self._rows, strict=True):
            count = code.pack(self._buffer.values, rows, blocks, channel.begin())
            flags, payload = flag_bytes(len(rows), blocks), count * self._buffer.row_bytes
            channel.send(flags + payload)
            self._buffer.report.sent(count, len(rows) * blocks - count, payload, flags)


class ReceiveStep:
    """Waits for rows of others, and puts them into a buffer."""

    def __init__(
        self, buffer: SlotBuffer, routes: Iterable[Route], channels: Sequence[Incoming], following: Sequence[Incoming]
    ) -> None:
        """Take the channels of the routes, and those of the step that waits next."""
        self._buffer, self._channels, self._following = buffer, channels, following
        self._rows = [range(int(route.rows[0]), int(route.rows[-1]) + 1) for route in routes]

    def may_run(self) -> bool:
        """Return whether everything has arrived."""
        return all(channel.has_arrived() for channel in self._channels)

    def run(self, samples: int) -> None:
        """Unpack, and make ready for what comes next, so that it needs no copy on the way."""
        code = self._buffer.code
        blocks = -(-samples // code.width)
        for channel, rows in zip(self._channels, self._rows, strict=True):
            count = code.unpack(channel.message, self._buffer.values, rows, blocks)
            channel.release()
            self._buffer.report.row_bytes_received += count * self._buffer.row_bytes
        for channel in self._following:
            channel.expect()


ReadyStep = ComputeStep | SendStep | ReceiveStep


SPIN_SECONDS: Final = 2e-4
NAP_SECONDS: Final = 5e-5
"""Times of a rank that waits, in seconds: polling without a break, then naps between two polls."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TileContext:
    """State that the tiles of one call share."""

    part: Part
    code: BlockCode
    tile: TileShape
    channels: Channels
    report: RankReport


class Slot:
    """Memory for one tile at a time, and how far it is."""

    def __init__(self, context: TileContext, number: int) -> None:
        self._context, self._number = context, number
        self._memory, self._addresses = self._place_buffers()
        part = context.part
        self._tables: dict[int, NDArray[np.uint64]] = {
            index: np.array([self._address(operand) for operand in step.operands], dtype=np.uint64)
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
        self._expected, self._steps = self._ready_steps()
        self._step, self._samples = len(part.steps), 0

    def _ready_steps(self) -> tuple[Sequence[Incoming], list[ReadyStep]]:
        context, found = self._context, list[ReadyStep]()
        following: Sequence[Incoming] = ()
        for index, step in reversed(list(enumerate(context.part.steps))):
            if isinstance(step, Call):
                found.append(ComputeStep(context.code, step.function, self._tables[index]))
                continue
            values = BlockBuffer(self._addresses[step.buffer], context.part.buffers[step.buffer])
            buffer = SlotBuffer(context.code, context.report, values)
            if isinstance(step, Send):
                found.append(SendStep(buffer, step.routes, context.channels.outgoing[SlotStep(index, self._number)]))
                continue
            channels = context.channels.incoming[SlotStep(index, self._number)]
            found.append(ReceiveStep(buffer, step.routes, channels, following))
            following = channels
        return following, found[::-1]

    def _place_buffers(self) -> tuple[NDArray[np.uint8], list[int]]:
        """Return the memory of all buffers, and the address of each; what is dead makes room."""
        part, context = self._context.part, self._context
        first, last = dict[int, int](), dict[int, int]()
        for index, step in enumerate(part.steps):
            for buffer in step.buffers if isinstance(step, Call) else (step.buffer,):
                first.setdefault(buffer, index)
                last[buffer] = index
        homes = [number for number, buffer in enumerate(part.buffers) if buffer.port < 0 and number in first]
        lifetimes = [
            Lifetime(
                buffer_bytes(part.buffers[number].features, *context.tile, part.buffers[number].value_bytes),
                0 if part.buffers[number].kind == "zeros" else first[number],
                len(part.steps) if part.buffers[number].kind == "zeros" else last[number],
            )
            for number in homes
        ]
        plan = plan_offsets(lifetimes)
        memory = aligned_bytes(plan.total)
        memory[...] = 0
        addresses = [0] * len(part.buffers)
        for number, offset in zip(homes, plan.offsets, strict=True):
            addresses[number] = address_of(memory) + offset
        return memory, addresses

    def _address(self, start: BufferRow) -> int:
        """Return the address of a row of a buffer's first block."""
        value_bytes = self._context.part.buffers[start.buffer].value_bytes
        return self._addresses[start.buffer] + start.row * row_bytes(self._context.code.width, value_bytes)

    @property
    def is_done(self) -> bool:
        return self._step == len(self._steps)

    def start(self, inputs: Sequence[Floats], outputs: Sequence[Floats], samples: range) -> None:
        """Begin a tile of some samples."""
        self._samples, self._step = len(samples), 0
        for index, entry, buffer in self._row_major:
            array = (inputs if buffer.kind == "input" else outputs)[buffer.port]
            self._tables[index][entry] = address_of(array) + samples.start * buffer.features * array.itemsize
        for channel in self._expected:
            channel.expect()

    def advance(self) -> bool:
        """Do one step; return False when it has to wait for others."""
        step = self._steps[self._step]
        if not step.may_run():
            return False
        step.run(self._samples)
        self._step += 1
        return True

    def may_advance(self) -> bool:
        """Return whether everything that the tile waits for has arrived, or gone."""
        return self._steps[self._step].may_run()


def run_tiles(
    context: TileContext, slots: Sequence[Slot], inputs: Sequence[Floats], outputs: Sequence[Floats], samples: int
) -> None:
    """Take all samples through the steps."""
    size = context.tile.blocks * context.tile.width
    tiles = [range(begin, min(begin + size, samples)) for begin in range(0, samples, size)]
    waiting = {slot: tiles[number :: len(slots)] for number, slot in enumerate(slots)}
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
            _poll(lambda: _progressed(context, active))
            context.report.spent("waiting", time.perf_counter() - started)
    _poll(context.channels.all_gone)


def _progressed(context: TileContext, active: Sequence[Slot]) -> bool:
    """Return whether a slot may advance; what only MPI moves goes on meanwhile."""
    context.channels.mpi.progress()
    return any(slot.may_advance() for slot in active)


def _poll(done: Callable[[], bool]) -> None:
    """Wait until something is done: first without a break, then with short ones, so that others may use the core."""
    started = time.perf_counter()
    while not done():
        if time.perf_counter() - started > SPIN_SECONDS:
            time.sleep(NAP_SECONDS)
