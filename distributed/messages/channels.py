"""The channels of all messages of a part: through shared memory where it can be, over MPI elsewhere."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ...lowering.llvm.values import ALIGNMENT
from ...runtime.memory import address_of, aligned_bytes
from ..native.block_layout import flag_bytes, row_bytes
from ..parts.part_file import Part
from ..parts.steps import Call, Receive, Route, Send
from .transport import Channel, Incoming, Message, Outgoing, Transport

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request, Win

# Messages over MPI: nonblocking sends and receives, from memory that is used again and again.


class MessagePool:
    """Memory for messages, used again and again."""

    def __init__(self) -> None:
        """Take no memory yet."""
        self._free: dict[int, list[Message]] = {}

    def take(self, size: int) -> Message:
        """Return memory for `size` bytes."""
        capacity = 1 << max(size - 1, 1).bit_length()
        free = self._free.setdefault(capacity, [])
        return free.pop() if free else aligned_bytes(capacity)[:capacity]

    def give(self, message: Message) -> None:
        """Take memory back."""
        self._free.setdefault(len(message), []).append(message)


class MpiTransport:
    """Channels over MPI, and the messages of all of them that have not gone yet."""

    def __init__(self, comm: "Intracomm") -> None:
        """Send nothing yet."""
        self.comm, self.pool = comm, MessagePool()
        self.sending: list[_MpiOutgoing] = []

    def outgoing(self, channel: Channel) -> Outgoing:
        """Open the end of a channel to another rank."""
        return _MpiOutgoing(self, channel)

    def incoming(self, channel: Channel) -> Incoming:
        """Open the end of a channel from another rank."""
        return _MpiIncoming(self, channel)

    def progress(self) -> None:
        """Let MPI advance its messages, and release the memory of messages that were sent."""
        self.sending = [one for one in self.sending if not one.may_send()]

    @property
    def is_idle(self) -> bool:
        """Whether all messages have gone, as far as is known."""
        return not self.sending


class _Pending(NamedTuple):
    """A message that MPI reads or writes."""

    request: "Request"
    message: Message


class _MpiOutgoing:
    def __init__(self, transport: MpiTransport, channel: Channel) -> None:
        self._transport, self._channel = transport, channel
        self._message: Message | None = None
        self._pending: _Pending | None = None

    def may_send(self) -> bool:
        if self._pending is None:
            return True
        if not self._pending.request.Test():
            return False
        self._transport.pool.give(self._pending.message)
        self._pending = None
        return True

    def begin(self) -> int:
        self._message = self._transport.pool.take(self._channel.capacity)
        return address_of(self._message)

    def send(self, size: int) -> None:
        assert self._message is not None
        request = self._transport.comm.Isend(self._message[:size], dest=self._channel.rank, tag=self._channel.tag)
        self._pending = _Pending(request, self._message)
        self._transport.sending.append(self)
        self._transport.progress()


class _MpiIncoming:
    def __init__(self, transport: MpiTransport, channel: Channel) -> None:
        self._transport, self._channel = transport, channel
        self._pending: _Pending | None = None

    def expect(self) -> None:
        message = self._transport.pool.take(self._channel.capacity)
        request = self._transport.comm.Irecv(message, source=self._channel.rank, tag=self._channel.tag)
        self._pending = _Pending(request, message)

    def has_arrived(self) -> bool:
        assert self._pending is not None
        return self._pending.request.Test()

    @property
    def message(self) -> int:
        assert self._pending is not None
        return address_of(self._pending.message)

    def release(self) -> None:
        assert self._pending is not None
        self._transport.pool.give(self._pending.message)
        self._pending = None


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
            (SlotStep(index, slot), step, Channel(route.rank, tag_of(step.tag, slot), size))
            for index, step in enumerate(part.steps)
            if not isinstance(step, Call)
            for slot in range(SLOTS)
            for route in step.routes
            for size in [message_bytes(route, tile, part.buffers[step.buffer].value_bytes)]
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


def message_bytes(route: Route, tile: TileShape, value_bytes: int) -> int:
    """Return the bytes of a message that leaves nothing out."""
    rows = len(route.rows)
    return flag_bytes(rows, tile.blocks) + rows * tile.blocks * row_bytes(tile.width, value_bytes)


# Messages between ranks of one machine: the sender packs them right where the receiver unpacks them.
#
# Every rank has an inbox in memory that all ranks of its machine see, with a mailbox for each channel that ends there:
# the number of messages that arrived and the number of messages that were read, a cache line each, then the message.


SHARED_MEMORY_FOLDER: Final = "/dev/shm"
"""The folder of shared memory; a container may have little of it."""

MOST_SHARE: Final = 0.5
"""The share of the free shared memory that inboxes may take."""

_HEADER: Final = 2 * ALIGNMENT


class Sender(NamedTuple):
    """Sender along a channel: the rank, and the tag of its messages."""

    rank: int
    tag: int


class MailboxOffsets(NamedTuple):
    """First bytes of mailboxes, from the start of an inbox."""

    own_rank: int
    own: Mapping[Sender, int]
    """Mailboxes in this rank's inbox."""
    others: Mapping[int, Mapping[int, int]]
    """Mailboxes in the inboxes of others, by the rank that receives and the tag."""


class SharedMemoryTransport:
    """The channels between this rank and others of its machine."""

    def __init__(self, win: "Win", inboxes: Mapping[int, Message], offsets: MailboxOffsets) -> None:
        """Take the inboxes by rank, and where their mailboxes begin."""
        self._win, self._inboxes, self._offsets = win, inboxes, offsets

    def reaches(self, rank: int) -> bool:
        """Return whether a rank is on this machine."""
        return rank in self._inboxes

    def outgoing(self, channel: Channel) -> Outgoing:
        """Open the end of a channel to another rank."""
        inbox, offset = self._inboxes[channel.rank], self._offsets.others[channel.rank][channel.tag]
        return _SharedOutgoing(self._win, inbox[offset:])

    def incoming(self, channel: Channel) -> Incoming:
        """Open the end of a channel from another rank."""
        inbox, offset = self._inboxes[self._offsets.own_rank], self._offsets.own[Sender(channel.rank, channel.tag)]
        return _SharedIncoming(self._win, inbox[offset:])


def open_inboxes(comm: "Intracomm", channels: Sequence[Channel]) -> SharedMemoryTransport | None:
    """Return the transport between the ranks of this machine, None where memory is short; `channels` end at this rank.

    All ranks of `comm` call it; those of a machine return alike.
    """
    from mpi4py import MPI

    node = MPI.Intracomm(comm.Split_type(MPI.COMM_TYPE_SHARED))
    ranks = node.allgather(comm.rank)
    near = [channel for channel in channels if channel.rank in ranks]
    size = mailbox_offsets(near, ALIGNMENT)[-1]
    if node.allreduce(size) > node.allreduce(_free_bytes(), MPI.MIN) * MOST_SHARE:
        node.Free()
        return None
    win = MPI.Win.Allocate_shared(size, 1, comm=node)
    win.Lock_all(MPI.MODE_NOCHECK)
    inboxes = {rank: _bytes_of(win, number) for number, rank in enumerate(ranks)}
    inbox = inboxes[comm.rank]
    inbox[:] = 0
    win.Sync()
    own = {
        Sender(channel.rank, channel.tag): offset
        for channel, offset in zip(near, mailbox_offsets(near, -address_of(inbox) % ALIGNMENT), strict=False)
    }
    by_sender = [{sender.tag: offset for sender, offset in own.items() if sender.rank == rank} for rank in ranks]
    # nobody knows where to send before all inboxes are empty
    others = dict(zip(ranks, node.alltoall(by_sender), strict=True))
    node.Free()
    return SharedMemoryTransport(win, inboxes, MailboxOffsets(comm.rank, own, others))


def mailbox_offsets(channels: Sequence[Channel], first: int) -> list[int]:
    """Return where the mailbox of each channel begins, and the end; from `first` on at multiples of `ALIGNMENT`."""
    sizes = [_HEADER + -(-channel.capacity // ALIGNMENT) * ALIGNMENT for channel in channels]
    return [first + int(offset) for offset in np.cumsum([0, *sizes])]


def _free_bytes() -> int:
    try:
        found = os.statvfs(SHARED_MEMORY_FOLDER)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _bytes_of(win: "Win", number: int) -> Message:
    buffer, _ = win.Shared_query(number)
    return np.frombuffer(buffer.cast("B"), dtype=np.uint8)


class _Mailbox:
    """A mailbox as one of its ends sees it."""

    def __init__(self, win: "Win", memory: Message) -> None:
        self._sync = win.Sync
        words = memory[:_HEADER].data.cast("Q")
        self._come, self._read = words[:1], words[ALIGNMENT // 8 :][:1]
        self._address = address_of(memory) + _HEADER


class _SharedOutgoing(_Mailbox):
    def may_send(self) -> bool:
        return self._read[0] == self._come[0]

    def begin(self) -> int:
        return self._address

    def send(self, _: int) -> None:
        # first the message, then the number that says that it is there
        self._sync()
        self._come[0] += 1


class _SharedIncoming(_Mailbox):
    def expect(self) -> None:
        """Nothing has to be made ready."""

    def has_arrived(self) -> bool:
        return self._come[0] != self._read[0]

    @property
    def message(self) -> int:
        self._sync()
        return self._address

    def release(self) -> None:
        self._sync()
        self._read[0] += 1
