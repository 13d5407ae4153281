"""Messages of training: values of neurons forward, their gradients the other way round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .pieces import PieceColumns

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

Floats = NDArray[np.float32]


@dataclass
class BytesSent:
    """Bytes of values that a rank has sent, by what they were."""

    inputs: int = 0
    forward: int = 0
    """Values of neurons that others read."""
    backward: int = 0
    """Gradients of such values."""
    outputs: int = 0
    """Outputs, which every rank needs for the loss."""
    shared: int = 0
    """Gradients of constants that several ranks hold."""


class Wire:
    """The messages of one rank that have not gone yet, and their bytes."""

    def __init__(self, comm: "Intracomm") -> None:
        """Send nothing yet."""
        self.comm, self.bytes_sent = comm, BytesSent()
        self._sending: list[Request] = []

    def send(self, message: Floats, rank: int, tag: int, kind: str) -> None:
        """Begin to send a message, which stays as it is until `finish`."""
        self._sending.append(self.comm.Isend(message, rank, tag))
        setattr(self.bytes_sent, kind, getattr(self.bytes_sent, kind) + message.nbytes)

    def receive(self, messages: Sequence[Floats], ranks: Sequence[int], tag: int) -> None:
        """Wait for messages."""
        waiting = [self.comm.Irecv(message, rank, tag) for message, rank in zip(messages, ranks, strict=True)]
        for request in waiting:
            request.Wait()

    def finish(self) -> None:
        """Wait until all messages have gone."""
        for request in self._sending:
            request.Wait()
        self._sending.clear()


@dataclass(frozen=True)
class Message:
    """Columns of some pieces in one message, to or from a rank."""

    rank: int
    arrays: Sequence[Floats]
    columns: Sequence[PieceColumns]
    buffer: Floats

    @staticmethod
    def of(rank: int, arrays: Sequence[Floats], columns: Sequence[PieceColumns], *, apart: bool = False) -> "Message":
        """Return a message; a message of one whole piece shares its memory, unless `apart`."""
        every = list(range(len(arrays[0][0])))
        whole = not apart and len(columns) == 1 and columns[0].columns.tolist() == every
        count = sum(len(one.columns) for one in columns)
        buffer = arrays[0] if whole else np.empty((len(arrays[0]), count), np.float32)
        return Message(rank, arrays, columns, buffer)

    def pack(self) -> None:
        """Write the columns into the message."""
        for array, one in zip(self.arrays, self.columns, strict=True):
            if array is not self.buffer:
                self.buffer[:, one.message] = array[:, one.columns]

    def unpack(self) -> None:
        """Write the message into the columns."""
        for array, one in zip(self.arrays, self.columns, strict=True):
            if array is not self.buffer:
                array[:, one.columns] = self.buffer[:, one.message]

    def add(self) -> None:
        """Add the message to the columns."""
        for array, one in zip(self.arrays, self.columns, strict=True):
            array[:, one.columns] += self.buffer[:, one.message]
