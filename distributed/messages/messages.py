"""Messages between two ranks: one way for each route, value and slot, along which a tile's rows follow the last one's.

A way holds one message at a time: who wants to send the next one before the last has gone has to wait. Tiles finish in
their order in every slot, so the tile that all others wait for never does.
"""

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from redpebble.runtime.memory import address_of, aligned_bytes

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

Message = NDArray[np.uint8]


class Outgoing(Protocol):
    """The end of a way that sends."""

    def may_send(self) -> bool:
        """Return whether the last message has gone."""
        ...

    def begin(self) -> int:
        """Return the address of memory for a message."""
        ...

    def send(self, size: int, /) -> None:
        """Send what was written there, so many bytes."""
        ...


class Incoming(Protocol):
    """The end of a way that receives."""

    def expect(self) -> None:
        """Make ready for a message."""
        ...

    def has_arrived(self) -> bool:
        """Return whether the message is there."""
        ...

    @property
    def message(self) -> int:
        """The address of the message that is there."""
        ...

    def release(self) -> None:
        """Allow the next message."""
        ...


class MessagePool:
    """Memory for messages, used again and again."""

    def __init__(self) -> None:
        """Take no memory yet."""
        self._free: dict[int, list[Message]] = {}

    def take(self, size: int) -> Message:
        """Return memory for `size` bytes."""
        room = 1 << max(size - 1, 1).bit_length()
        free = self._free.setdefault(room, [])
        return free.pop() if free else aligned_bytes(room)[:room]

    def give(self, message: Message) -> None:
        """Take memory back."""
        self._free.setdefault(len(message), []).append(message)


class MpiPost:
    """Messages over MPI; `room` is the bytes of the largest one of a way."""

    def __init__(self, comm: "Intracomm") -> None:
        """Send nothing yet."""
        self._comm, self._pool = comm, MessagePool()
        self._going: list[_MpiOutgoing] = []

    def outgoing(self, rank: int, tag: int, room: int) -> Outgoing:
        """Return the way of messages to a rank."""
        return _MpiOutgoing(self, rank, tag, room)

    def incoming(self, rank: int, tag: int, room: int) -> Incoming:
        """Return the way of messages from a rank."""
        return _MpiIncoming(self, rank, tag, room)

    def progress(self) -> None:
        """Let MPI go on with what is on its way, and take back the memory of what has gone."""
        self._going = [way for way in self._going if not way.may_send()]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way any more, as far as is known."""
        return not self._going

    def take(self, room: int) -> Message:
        """Return memory for a message."""
        return self._pool.take(room)

    def give(self, message: Message) -> None:
        """Take memory back."""
        self._pool.give(message)

    def sent(self, way: "_MpiOutgoing", message: Message, tag: int) -> "Request":
        """Send a message along a way."""
        self._going.append(way)
        return self._comm.Isend(message, dest=way.rank, tag=tag)

    def received(self, message: Message, rank: int, tag: int) -> "Request":
        """Receive into a message."""
        return self._comm.Irecv(message, source=rank, tag=tag)


class _MpiOutgoing:
    def __init__(self, post: MpiPost, rank: int, tag: int, room: int) -> None:
        self._post, self.rank, self._tag, self._room = post, rank, tag, room
        self._message: Message | None = None
        self._request: Request | None = None

    def may_send(self) -> bool:
        if self._request is None or self._message is None:
            return True
        if not self._request.Test():
            return False
        self._post.give(self._message)
        self._message = self._request = None
        return True

    def begin(self) -> int:
        self._message = self._post.take(self._room)
        return address_of(self._message)

    def send(self, size: int) -> None:
        assert self._message is not None
        self._request = self._post.sent(self, self._message[:size], self._tag)
        self._post.progress()


class _MpiIncoming:
    def __init__(self, post: MpiPost, rank: int, tag: int, room: int) -> None:
        self._post, self._rank, self._tag, self._room = post, rank, tag, room
        self._expected: tuple[Request, Message] | None = None

    def expect(self) -> None:
        message = self._post.take(self._room)
        self._expected = self._post.received(message, self._rank, self._tag), message

    def has_arrived(self) -> bool:
        assert self._expected is not None
        return self._expected[0].Test()

    @property
    def message(self) -> int:
        assert self._expected is not None
        return address_of(self._expected[1])

    def release(self) -> None:
        assert self._expected is not None
        self._post.give(self._expected[1])
        self._expected = None
