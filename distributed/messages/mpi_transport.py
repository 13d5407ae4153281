"""Messages over MPI: nonblocking sends and receives, from memory that is used again and again."""

from typing import TYPE_CHECKING, NamedTuple

from ...runtime.memory import address_of, aligned_bytes
from .transport import Channel, Incoming, Message, Outgoing

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request


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
        """Let MPI go on with its messages, and take back the memory of those that have gone."""
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
