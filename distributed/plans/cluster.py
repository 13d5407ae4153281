"""Rates of a machine of a cluster: the numbers behind every predicted time.

A message of n bytes costs its sender `message_seconds` + n / `copied_bytes` of work, arrives `latency` +
n / `bandwidth` later, and costs its receiver as much work again: the alpha-beta model, with the work of both ends apart
because only the time on the wire can be filled with other tiles.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ...dialect.ops.layers import LinearOp
from ...passes.analysis.weights import connection_count, weight_of
from ..parts.tile_sizes import block_width

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

VALUE_BYTES: Final = 4
_SMALL, _LARGE = 64, 1 << 22
_LOOPS: Final = 20


@dataclass(frozen=True)
class Machine:
    """Rates of one rank. The defaults are a cloud machine behind 10 Gbit/s Ethernet, and one core.

    Raises:
        ValueError: a rate is not positive.
    """

    latency: float = 30e-6
    """Seconds from the end of sending until the first byte is there."""
    bandwidth: float = 1.25e9
    """Bytes a second on the wire, each way."""
    message_seconds: float = 15e-6
    """Work of either end for a message."""
    copied_bytes: float = 4e9
    """Bytes a second that either end packs or unpacks."""
    transposed_bytes: float = 9e9
    """Bytes a second of inputs that become columns, and of outputs that become rows."""
    products: float = 5e9
    """Connections times samples a second."""
    share: float = 1.0
    """Share of a core that a rank has: the other rates already are those of this share."""

    def __post_init__(self) -> None:
        """Check the rates."""
        for name, value in vars(self).items():
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} of a machine: expected a positive number, got {value}")

    def with_kernels_of(self, module: ModuleOp) -> Machine:
        """Return the machine with the rate that the kernels of a module are predicted to reach on its blocks."""
        work, seconds, width = 0.0, 0.0, block_width(module)
        for op in module.walk():
            weight = weight_of(op.weight) if isinstance(op, LinearOp) else None
            times = op.kernel.predicted if isinstance(op, LinearOp) and op.kernel is not None else dict[int, float]()
            if weight is not None and width in times:
                work += connection_count(weight) * width
                seconds += times[width] * 1e-6
        return replace(self, products=self.share * work / seconds) if work and seconds else self

    def shared(self, ranks: int) -> Machine:
        """Return a machine of which so many ranks share each core."""
        return replace(
            self,
            message_seconds=self.message_seconds * ranks,
            copied_bytes=self.copied_bytes / ranks,
            transposed_bytes=self.transposed_bytes / ranks,
            products=self.products / ranks,
            share=self.share / ranks,
        )


SHARED_MEMORY: Final = Machine(latency=2e-6, bandwidth=2e10, message_seconds=8e-6, copied_bytes=7e9)
"""Ranks of one machine that send through memory that both see: packing and unpacking is all there is."""


def measured_machine(comm: Intracomm, machine: Machine) -> Machine:
    """Return the machine with latency and bandwidth measured between ranks 0 and 1, the same on all ranks.

    Takes some milliseconds; with one rank there is nothing to measure.
    """
    if comm.size < 2:
        return machine
    small, large = _one_way_seconds(comm, _SMALL), _one_way_seconds(comm, _LARGE)
    measured = replace(machine, latency=max(small, 1e-9), bandwidth=_LARGE / max(large - small, 1e-9))
    return comm.bcast(measured if comm.rank == 0 else None, root=0)


def measured_world(machine: Machine) -> Machine | None:
    """Return the machine measured between the ranks of mpiexec, on the first of them; the others have nothing to do."""
    from mpi4py import MPI

    measured = measured_machine(MPI.COMM_WORLD, machine)
    return measured if MPI.COMM_WORLD.rank == 0 else None


def _one_way_seconds(comm: Intracomm, size: int) -> float:
    """Return the fastest of some ping-pongs, by half, for ranks 0 and 1; others wait."""
    message = np.zeros(size, dtype=np.uint8)
    fastest = float("inf")
    comm.Barrier()
    for _ in range(_LOOPS):
        started = time.perf_counter()
        if comm.rank == 0:
            comm.Send(message, dest=1, tag=0)
            comm.Recv(message, source=1, tag=0)
        elif comm.rank == 1:
            comm.Recv(message, source=0, tag=0)
            comm.Send(message, dest=0, tag=0)
        fastest = min(fastest, (time.perf_counter() - started) / 2)
    return fastest
