"""Sends and receives of all ranks against each other: no rank waits for what no other sends, or for itself."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..parts.part_file import Part
from ..parts.steps import Call, Send
from .agreement import agree

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Exchange(NamedTuple):
    """A step that sends, or waits for, rows of the value `tag`: the other ranks, and the number of rows of each."""

    sends: bool
    tag: int
    rows: tuple[tuple[int, int], ...]


def check_exchanges(comm: "Intracomm", part: Part) -> None:
    """Check that the ranks come to an end together.

    Raises:
        PartError: on all ranks, when one would wait for ever, or for another number of rows than is sent.
    """
    schedules = comm.gather(exchanges_of(part))
    agree(comm, None if schedules is None else deadlock(schedules))


def exchanges_of(part: Part) -> list[Exchange]:
    """Return the exchanges of a rank, in order."""
    return [
        Exchange(isinstance(step, Send), step.tag, tuple((route.rank, len(route.rows)) for route in step.routes))
        for step in part.steps
        if not isinstance(step, Call)
    ]


def deadlock(schedules: Sequence[Sequence[Exchange]]) -> str | None:
    """Return what is wrong with exchanges by rank, None where all ranks get through them.

    Runs them as the ranks do: what is sent waits for its receiver, and only that waits for others.
    """
    done = [0] * len(schedules)
    sent: dict[tuple[int, int, int], int] = {}
    """Sender, receiver and tag -> rows on their way."""
    awake = [*range(len(schedules))]
    while awake:
        rank = awake.pop()
        while done[rank] < len(schedules[rank]):
            step = schedules[rank][done[rank]]
            if step.sends:
                for other, count in step.rows:
                    if (rank, other, step.tag) in sent:
                        return f"rank {rank} sends value {step.tag} to rank {other} twice"
                    sent[rank, other, step.tag] = count
                    awake.append(other)
            else:
                if any((other, rank, step.tag) not in sent for other, _ in step.rows):
                    break
                for other, expected in step.rows:
                    found = sent.pop((other, rank, step.tag), None)
                    if found != expected:
                        rows = f"{found or 0} rows of value {step.tag} to rank {rank}"
                        return f"rank {other} sends {rows}, which expects {expected}"
            done[rank] += 1
    for rank, (count, schedule) in enumerate(zip(done, schedules, strict=True)):
        if count < len(schedule):
            others = ", ".join(str(other) for other, _ in schedule[count].rows)
            return f"rank {rank} waits for value {schedule[count].tag} of ranks {others}, which they do not send"
    for rank, other, tag in sent:
        return f"rank {rank} sends value {tag} to rank {other}, which does not expect it"
    return None
