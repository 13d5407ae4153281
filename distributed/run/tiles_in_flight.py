"""Batch tiles on their way through a rank's steps: while one waits for rows of others, the next one computes.

A tile runs until it needs rows that have not arrived, or its last message has not gone, then the next one goes on. Tile
t takes slot t mod `SLOTS` on every rank, a message's tag names value and slot, and a slot takes its tiles in order: so
messages find their tile.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from redpebble.distributed.messages.channels import Ways
from redpebble.distributed.messages.messages import Incoming
from redpebble.distributed.native.block_layout import buffer_bytes, row_bytes
from redpebble.distributed.parts.block_code import BlockCode
from redpebble.distributed.parts.part_file import Part
from redpebble.distributed.parts.steps import Call, Send
from redpebble.distributed.run.slot_steps import Collect, Compute, Dispatch, Place, SlotStep
from redpebble.distributed.run.traffic_report import RankReport
from redpebble.lowering.buffer_packing import Lifetime, plan_offsets
from redpebble.runtime.memory import address_of, aligned_bytes

SPIN_SECONDS: Final = 2e-4
NAP_SECONDS: Final = 5e-5
"""How long a rank that waits looks without a break, and how long it naps between two looks afterwards."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Flight:
    """What the tiles of one call have in common."""

    part: Part
    code: BlockCode
    tile: int
    """Samples of a tile, a multiple of the width."""
    ways: Ways
    report: RankReport


class Slot:
    """Memory for one tile at a time, and how far it is."""

    def __init__(self, flight: Flight, number: int) -> None:
        self._flight, self._number = flight, number
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
        self._expected, self._steps = self._ready_steps()
        self._step, self._samples = len(part.steps), 0

    def _ready_steps(self) -> tuple[Sequence[Incoming], list[SlotStep]]:
        """Return what a tile expects first, and its steps."""
        flight, found = self._flight, list[SlotStep]()
        following: Sequence[Incoming] = ()
        for index, step in reversed(list(enumerate(flight.part.steps))):
            if isinstance(step, Call):
                found.append(Compute(flight.code, step.function, self._tables[index]))
                continue
            features = flight.part.buffers[step.buffer].features
            place = Place(flight.code, flight.report, self._places[step.buffer], features)
            if isinstance(step, Send):
                found.append(Dispatch(place, step.routes, flight.ways.outgoing[index, self._number]))
                continue
            ways = flight.ways.incoming[index, self._number]
            found.append(Collect(place, step.routes, ways, following))
            following = ways
        return following, found[::-1]

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
        return self._step == len(self._steps)

    def start(self, inputs: Sequence[Floats], outputs: Sequence[Floats], span: tuple[int, int]) -> None:
        """Take the samples of a span."""
        begin, end = span
        self._samples, self._step = end - begin, 0
        for index, entry, buffer in self._row_major:
            array = (inputs if buffer.place == "input" else outputs)[buffer.port]
            self._tables[index][entry] = address_of(array) + begin * buffer.features * array.itemsize
        for way in self._expected:
            way.expect()

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
            _poll(lambda: _progressed(flight, active))
            flight.report.spent("waiting", time.perf_counter() - started)
    _poll(flight.ways.all_gone)


def _progressed(flight: Flight, active: Sequence[Slot]) -> bool:
    """Return whether a slot may advance; what only MPI moves goes on meanwhile."""
    flight.ways.mpi.progress()
    return any(slot.may_advance() for slot in active)


def _poll(done: Callable[[], bool]) -> None:
    """Wait until something is done: first without a break, then with short ones, so that others may use the core."""
    started = time.perf_counter()
    while not done():
        if time.perf_counter() - started > SPIN_SECONDS:
            time.sleep(NAP_SECONDS)
