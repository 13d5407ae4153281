"""Messages between ranks of one machine: the sender packs them right where the receiver unpacks them.

Every rank has an inbox in memory that all ranks of its machine see, with a place for each way that ends there: the
number of messages that have come, the number of those that were read, a cache line each, and room for one message.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from redpebble.distributed.messages.messages import Incoming, Message, Outgoing
from redpebble.lowering.llvm.builder import ALIGNMENT
from redpebble.runtime.memory import address_of

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Win

MEMORY: Final = "/dev/shm"
"""Where systems keep shared memory; a container may have little of it."""

SHARE: Final = 0.5
"""Of the free shared memory that inboxes may take."""

_HEADER: Final = 2 * ALIGNMENT


class Way(NamedTuple):
    """A way that ends here: the rank that sends, the tag, the bytes of the largest message."""

    rank: int
    tag: int
    room: int


class SharedPost:
    """The ways between this rank and others of its machine."""

    def __init__(self, win: "Win", inboxes: Mapping[int, Message], places: "Places") -> None:
        """Take the inboxes by rank, and what has its place where."""
        self._win, self._inboxes, self._places = win, inboxes, places

    def reaches(self, rank: int) -> bool:
        """Return whether a rank is on this machine."""
        return rank in self._inboxes

    def outgoing(self, rank: int, tag: int, _: int) -> Outgoing:
        """Return the way of messages to a rank."""
        return _SharedOutgoing(self._win, self._inboxes[rank][self._places.there[rank][tag] :])

    def incoming(self, rank: int, tag: int, _: int) -> Incoming:
        """Return the way of messages from a rank."""
        return _SharedIncoming(self._win, self._inboxes[self._places.own][self._places.here[rank, tag] :])


class Places(NamedTuple):
    """Where messages have their places."""

    own: int
    """This rank."""
    here: Mapping[tuple[int, int], int]
    """In its own inbox, by the rank that sends and the tag."""
    there: Mapping[int, Mapping[int, int]]
    """In those of others, by the rank that receives and the tag."""


def open_inboxes(comm: "Intracomm", ways: Sequence[Way]) -> SharedPost | None:
    """Return the ways between the ranks of this machine, `ways` being those that end here; None where memory is short.

    All ranks of `comm` call it; those of a machine return alike.
    """
    from mpi4py import MPI

    node = MPI.Intracomm(comm.Split_type(MPI.COMM_TYPE_SHARED))
    ranks = node.allgather(comm.rank)
    near = [way for way in ways if way.rank in ranks]
    size = inbox_places(near, ALIGNMENT)[-1]
    if node.allreduce(size) > node.allreduce(_free_bytes(), MPI.MIN) * SHARE:
        node.Free()
        return None
    win = MPI.Win.Allocate_shared(size, 1, comm=node)
    win.Lock_all(MPI.MODE_NOCHECK)
    inboxes = {rank: _bytes_of(win, number) for number, rank in enumerate(ranks)}
    own = inboxes[comm.rank]
    own[:] = 0
    win.Sync()
    here = {
        (way.rank, way.tag): place
        for way, place in zip(near, inbox_places(near, -address_of(own) % ALIGNMENT), strict=False)
    }
    by_sender = [{tag: place for (sender, tag), place in here.items() if sender == rank} for rank in ranks]
    # nobody knows where to send before all inboxes are empty
    there = dict(zip(ranks, node.alltoall(by_sender), strict=True))
    node.Free()
    return SharedPost(win, inboxes, Places(comm.rank, here, there))


def inbox_places(ways: Sequence[Way], first: int) -> list[int]:
    """Return where in an inbox each way has its place, and the end; from `first` on at multiples of `ALIGNMENT`."""
    sizes = [_HEADER + -(-way.room // ALIGNMENT) * ALIGNMENT for way in ways]
    return [first + int(place) for place in np.cumsum([0, *sizes])]


def _free_bytes() -> int:
    try:
        found = os.statvfs(MEMORY)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _bytes_of(win: "Win", number: int) -> Message:
    buffer, _ = win.Shared_query(number)
    return np.frombuffer(buffer.cast("B"), dtype=np.uint8)


class _Place:
    """A place of an inbox as one of its ends sees it."""

    def __init__(self, win: "Win", memory: Message) -> None:
        self._sync = win.Sync
        words = memory[:_HEADER].data.cast("Q")
        self._come, self._read = words[:1], words[ALIGNMENT // 8 :][:1]
        self._address = address_of(memory) + _HEADER


class _SharedOutgoing(_Place):
    def may_send(self) -> bool:
        return self._read[0] == self._come[0]

    def begin(self) -> int:
        return self._address

    def send(self, _: int) -> None:
        # first the message, then the number that says that it is there
        self._sync()
        self._come[0] += 1


class _SharedIncoming(_Place):
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
