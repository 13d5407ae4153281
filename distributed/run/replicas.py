"""Replicas that are trained together, one on each rank: sums of float32, or votes of one bit a value.

A vote is a reduction of bits as a sum is one of floats (Lion Cub, Ishikawa et al. 2024): every rank gets the bits of
its shard from all others (Alltoall), counts, and sends the majority to all others (Allgather). A value costs two bits
a step, where a sum of float32 costs two floats. Sums in a few bits go the same way, see
`redpebble.training.quantized_sums`.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .agreement import world

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class MpiReplicas:
    """The replicas on the ranks of a communicator."""

    def __init__(self, comm: "Intracomm") -> None:
        """Join the others."""
        self._comm = comm
        self.rank, self.size, self.bytes_sent = comm.rank, comm.size, 0
        self._voted: Bytes | None = None

    @staticmethod
    def of_world() -> "MpiReplicas":
        """Return the replicas of all ranks that mpiexec started.

        Raises:
            ValueError: there is no MPI.
        """
        return MpiReplicas(world("--replicas"))

    def add(self, values: Floats) -> None:
        """Add up the values of all, in place; counted as a ring sends them."""
        from mpi4py import MPI

        self._comm.Allreduce(MPI.IN_PLACE, values, MPI.SUM)
        self.bytes_sent += 2 * (self.size - 1) * values.nbytes // self.size

    def vote(self, bits: Bytes) -> Bytes:
        """Return the bits that most have; where as many differ, what was voted before."""
        shard = -(-len(bits) // self.size)
        sent = np.zeros((self.size, shard), np.uint8)
        sent.ravel()[: len(bits)] = bits
        counts = np.unpackbits(self.scatter(sent), axis=1).sum(axis=0, dtype=np.int32)
        before = np.zeros(shard, np.uint8) if self._voted is None else self._voted
        majority = np.where(2 * counts == self.size, np.unpackbits(before), 2 * counts > self.size)
        self._voted = np.packbits(majority)
        return self.gather(self._voted[None]).ravel()[: len(bits)]

    def scatter(self, blocks: Bytes) -> Bytes:
        """Return the blocks of all ranks for this one; `blocks` [size * share, bytes] is ordered by receiver."""
        received = np.empty_like(blocks)
        self._comm.Alltoall(np.ascontiguousarray(blocks), received)
        self.bytes_sent += (self.size - 1) * blocks.nbytes // self.size
        return received

    def gather(self, blocks: Bytes) -> Bytes:
        """Return the blocks [share, bytes] of all, [size * share, bytes]."""
        gathered = np.empty((self.size * len(blocks), blocks.shape[1]), np.uint8)
        self._comm.Allgather(np.ascontiguousarray(blocks), gathered)
        self.bytes_sent += (self.size - 1) * blocks.nbytes
        return gathered

    def total(self, value: float) -> float:
        """Return the sum over all."""
        return float(self._comm.allreduce(value))
