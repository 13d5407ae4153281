"""Agreement of all ranks before they go on: an error of one rank is raised on all, so that no rank waits for ever."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ...foundation.errors import RedpebbleError
from ..errors import PartError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Result = TypeVar("Result")


def agree(comm: "Intracomm", error: str | None) -> None:
    """Return on all ranks, or raise on all.

    Raises:
        PartError: a rank has an error; the message is that of the first such rank.
    """
    errors = [entry for entry in comm.allgather(error) if entry is not None]
    if errors:
        raise PartError(errors[0])


def agreed(comm: "Intracomm", work: Callable[[], Result]) -> Result:
    """Return the result of `work` on this rank, after it succeeded on all ranks.

    Raises:
        PartError: it was not; the message is that of the first such rank.
    """
    results, message = list[Result](), None
    try:
        results.append(work())
    except (RedpebbleError, OSError, ValueError) as error:
        message = " ".join(str(error).split())
    agree(comm, message)
    return results[0]


def world(what: str) -> "Intracomm":
    """Return the ranks that mpiexec started.

    Raises:
        ValueError: there is no MPI, which `what` needs.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ValueError(f"{what} needs MPI: pip install 'redpebble[mpi]' ({' '.join(str(error).split())})") from error
    return MPI.COMM_WORLD


def agree_on(comm: "Intracomm", value: object, what: str) -> None:
    """Check that all ranks have the same value.

    Raises:
        PartError: they have not; the message names `what` and two ranks.
    """
    values = comm.allgather(value)
    other = next((rank for rank, found in enumerate(values) if found != values[0]), None)
    if other is not None:
        raise PartError(f"ranks disagree on {what}: {values[0]} on rank 0, {values[other]} on rank {other}")


def after_the_first(comm: "Intracomm", work: Callable[[], Result]) -> Result:
    """Return the result of `work`; one rank of each machine runs it first and leaves files for the others."""
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    done = [work()] if node.rank == 0 else []
    node.Barrier()
    node.Free()
    return done[0] if done else work()
