"""Channels between two ranks: one for each route, value and slot, along which a tile's rows follow the last one's.

A channel holds one message at a time: a sender waits until the last one has gone. Tiles finish in their order in every
slot, so the tile that all others wait for never does.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Message = NDArray[np.uint8]


class Channel(NamedTuple):
    """One end of a channel: the rank at the other end, the tag, and the bytes of the largest message."""

    rank: int
    tag: int
    capacity: int


class Outgoing(Protocol):
    """The end of a channel that sends."""

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
    """The end of a channel that receives."""

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


class Transport(Protocol):
    """A transport of messages between ranks."""

    def outgoing(self, channel: Channel, /) -> Outgoing:
        """Open the end of a channel to another rank."""
        ...

    def incoming(self, channel: Channel, /) -> Incoming:
        """Open the end of a channel from another rank."""
        ...
