"""Messages between ranks of one machine: the sender packs them right where the receiver unpacks them.

Every rank has an inbox in memory that all ranks of its machine see, with a mailbox for each channel that ends there:
the number of messages that have come, the number of those that were read, a cache line each, then the message.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ...lowering.llvm.builder import ALIGNMENT
from ...runtime.memory import address_of
from .transport import Channel, Incoming, Message, Outgoing

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Win

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
