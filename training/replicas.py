"""Replicas of a network that are trained together: each takes its share of every batch, all have the same values."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class Replicas(Protocol):
    """The replicas as seen by one of them; all replicas call the same methods in the same order."""

    rank: int
    size: int
    bytes_sent: int
    """Bytes that this one has sent."""

    def add(self, values: Floats) -> None:
        """Add up the values of all, in place."""
        ...

    def vote(self, bits: Bytes) -> Bytes:
        """Return the bits that most have, as `np.packbits` packs them; where as many differ, what was voted before."""
        ...

    def scatter(self, blocks: Bytes) -> Bytes:
        """Return the blocks of all replicas for this one; `blocks` [size * share, bytes] is ordered by receiver."""
        ...

    def gather(self, blocks: Bytes) -> Bytes:
        """Return the blocks [share, bytes] of all, [size * share, bytes]."""
        ...

    def total(self, value: float) -> float:
        """Return the sum over all."""
        ...


class Alone:
    """A network without replicas."""

    rank = 0
    size = 1
    bytes_sent = 0

    def add(self, values: Floats) -> None:
        """Do nothing."""

    def vote(self, bits: Bytes) -> Bytes:
        """Return the bits."""
        return bits

    def scatter(self, blocks: Bytes) -> Bytes:
        """Return the blocks."""
        return blocks

    def gather(self, blocks: Bytes) -> Bytes:
        """Return the blocks."""
        return blocks

    def total(self, value: float) -> float:
        """Return the value."""
        return value
