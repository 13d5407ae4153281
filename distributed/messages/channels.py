"""The channels of all messages of a part: through shared memory where it can be, over MPI elsewhere."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ..native.block_layout import flag_bytes, row_bytes
from ..parts.part_file import Part
from ..parts.steps import Call, Receive, Route, Send
from .mpi_transport import MpiTransport
from .shared_memory_transport import open_inboxes
from .transport import Channel, Incoming, Outgoing, Transport

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

SLOTS: Final = 3
"""Tiles in flight: one computes, one waits, one fills the gaps between them."""


class SlotStep(NamedTuple):
    """A step of the part, by its number, as one slot runs it."""

    step: int
    slot: int


class TileShape(NamedTuple):
    """Number of blocks of a tile, and of samples of a block."""

    blocks: int
    width: int


@dataclass(frozen=True)
class Channels:
    """The channels of a part's messages, in the order of the routes of a step."""

    mpi: MpiTransport
    outgoing: dict[SlotStep, list[Outgoing]]
    incoming: dict[SlotStep, list[Incoming]]

    @staticmethod
    def open(comm: "Intracomm", part: Part, tile: TileShape, *, shared: bool) -> "Channels":
        """Open the channels for tiles of one shape; all ranks call it, with the same `shared`."""
        ends = [
            (SlotStep(index, slot), step, Channel(route.rank, tag_of(step.tag, slot), message_bytes(route, tile)))
            for index, step in enumerate(part.steps)
            if not isinstance(step, Call)
            for slot in range(SLOTS)
            for route in step.routes
        ]
        mpi = MpiTransport(comm)
        arriving = [channel for _, step, channel in ends if isinstance(step, Receive)]
        near = open_inboxes(comm, arriving) if shared else None
        channels = Channels(mpi, {}, {})
        for key, step, channel in ends:
            transport: Transport = near if near is not None and near.reaches(channel.rank) else mpi
            if isinstance(step, Send):
                channels.outgoing.setdefault(key, []).append(transport.outgoing(channel))
            else:
                channels.incoming.setdefault(key, []).append(transport.incoming(channel))
        return channels

    def all_gone(self) -> bool:
        """Return whether all messages over MPI have gone."""
        self.mpi.progress()
        return self.mpi.is_idle


def tag_of(number: int, slot: int) -> int:
    """Return the tag of a value's messages from one slot to the same of another rank."""
    return number * SLOTS + slot


def message_bytes(route: Route, tile: TileShape) -> int:
    """Return the bytes of a message that leaves nothing out."""
    rows = len(route.rows)
    return flag_bytes(rows, tile.blocks) + rows * tile.blocks * row_bytes(tile.width)
