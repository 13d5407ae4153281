"""A rank's part, found to be whole, and to be of the same plan as the parts of all other ranks."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ..errors import PartError
from ..parts.part_file import Part, part_in
from ..parts.plan_file import PlanFile, read_plan
from ..parts.steps import Buffer, Call, Indices, Receive, Send
from .agreement import agree, agree_on

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class LoadedPart(NamedTuple):
    """The plan, this rank's part, and the sha256 of its file in hexadecimal digits."""

    plan: PlanFile
    part: Part
    sha256: str


def load_part(comm: "Intracomm", folder: Path) -> LoadedPart:
    """Return the part of this rank of `comm`.

    Raises:
        PartError: on all ranks, if one rank has no matching part; the message names the rank and the reason.
    """
    loaded, digest, error = None, "", None
    try:
        plan, digest = read_plan(folder)
        loaded = _checked(plan, folder, comm.size, comm.rank)
    except (PartError, OSError, ValueError, TypeError, LookupError) as problem:
        error = " ".join(str(problem).split())
    agree(comm, error)
    agree_on(comm, digest[:12], f"the plan in {folder}")
    assert loaded is not None
    check_exchanges(comm, loaded.part)
    return loaded


def _checked(plan: PlanFile, folder: Path, size: int, rank: int) -> LoadedPart:
    if plan.part_count != size:
        raise PartError(f"{folder} holds {plan.part_count} parts: expected as many ranks, got {size}")
    entry = plan.parts[rank]
    path = folder / entry.file
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != entry.sha256:
                at_fault = f"part {rank}, {path}, is damaged or of another plan"
                raise PartError(f"{at_fault}: its checksum differs from plan.json")
            # what was looked at, whatever has this name by now
            part = part_in(file, path.name)
    except OSError as error:
        raise PartError(f"part {rank}, {path}, cannot be read: {(error.strerror or '').lower()}") from error
    if part.part_count != size or part.rank not in (rank, -1):
        raise PartError(f"{path}: expected part {rank} of {size}, got part {part.rank} of {part.part_count}")
    check_part(part, plan)
    return LoadedPart(plan, part, digest)


# Sends and receives of all ranks against each other: no rank waits for what no other sends, or for itself.


class Exchange(NamedTuple):
    """A step that sends, or waits for, rows of the value `tag`: the other ranks, and the number of rows of each."""

    sends: bool
    tag: int
    rows: tuple[tuple[int, int], ...]
    zero: int | None = None
    """The code of 0 where the rows are of codes, see `Buffer`."""


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
        Exchange(
            isinstance(step, Send),
            step.tag,
            tuple((route.rank, len(route.rows)) for route in step.routes),
            part.buffers[step.buffer].zero,
        )
        for step in part.steps
        if not isinstance(step, Call)
    ]


def deadlock(schedules: Sequence[Sequence[Exchange]]) -> str | None:
    """Return the deadlock in exchanges by rank, None if all ranks get through them.

    Runs the exchanges as the ranks do: sends complete at once, receives wait for their senders.
    """
    done = [0] * len(schedules)
    sent: dict[tuple[int, int, int], int] = {}
    """Sender, receiver and tag -> rows on their way."""
    zeros: dict[int, int | None] = {}
    """Tag -> the code of 0."""
    awake = [*range(len(schedules))]
    while awake:
        rank = awake.pop()
        while done[rank] < len(schedules[rank]):
            step = schedules[rank][done[rank]]
            if zeros.setdefault(step.tag, step.zero) != step.zero:
                return f"rank {rank} has value {step.tag} as other codes, or floats, than another rank"
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


# Checks of a part before it runs: every number in it names an existing thing, before native code sees it.
#
# The reads and writes of its functions are checked where they are compiled, see `check_calls`.

KINDS: Final = ("blocks", "zeros", "input", "output", "nodes")

MOST_VALUES: Final = 1 << 26
"""Values that have numbers, which become tags of messages."""

MOST_FEATURES: Final = 1 << 27
"""Features of a buffer, which is made for every slot."""


def check_part(part: Part, plan: PlanFile) -> None:
    """Check buffers, steps and routes of a part against each other and against the plan.

    Raises:
        PartError: names the buffer or the step, and the expected values.
    """
    if part.whole:
        return
    ports = {"input": part.inputs, "output": part.outputs}
    _expect(len(part.inputs) == len(plan.inputs), f"expected {len(plan.inputs)} inputs, got {len(part.inputs)}")
    _expect(len(part.outputs) == len(plan.outputs), f"expected {len(plan.outputs)} outputs, got {len(part.outputs)}")
    for kind, features in ports.items():
        for number, rows in enumerate(features):
            _check_features(f"{kind} {number}", rows)
    for number, buffer in enumerate(part.buffers):
        _check_buffer(f"buffer {number}", buffer, ports.get(buffer.kind, ()))
    for number, step in enumerate(part.steps):
        where = f"step {number}"
        if isinstance(step, Call):
            for operand in step.operands:
                buffer = _buffer(where, part.buffers, operand.buffer)
                _expect(
                    0 <= operand.row <= buffer.features, f"{where} begins at row {operand.row} of {buffer.features}"
                )
        else:
            _check_exchange(where, step, part)


def _check_exchange(where: str, step: Send | Receive, part: Part) -> None:
    buffer = _buffer(where, part.buffers, step.buffer)
    _expect(_is_below(step.tag, MOST_VALUES), f"{where} exchanges value {step.tag!r}")
    _expect(buffer.port < 0, f"{where} exchanges buffer {step.buffer}, which is no block")
    for route in step.routes:
        other = _is_below(route.rank, part.part_count) and route.rank != part.rank
        _expect(other, f"{where}: expected an exchange with another rank below {part.part_count}, got {route.rank}")
        rows = route.rows
        _expect(rows.ndim == 1 and len(rows) > 0, f"{where} exchanges no rows")
        inside = int(rows.min()) >= 0 and int(rows.max()) < buffer.features
        _expect(inside, f"{where} exchanges a row outside of buffer {step.buffer}, which has {buffer.features}")
        if isinstance(step, Receive):
            _expect(bool(np.all(np.diff(rows) == 1)), f"{where} receives rows that are not consecutive")


def _check_buffer(where: str, buffer: Buffer, ports: Sequence[Indices]) -> None:
    _expect(buffer.kind in KINDS, f"{where}: expected a kind of {', '.join(KINDS)}, got {buffer.kind!r}")
    count = buffer.features
    is_filled = count != 0 or buffer.kind == "nodes"
    _expect(is_filled and _is_below(count, MOST_FEATURES + 1), f"{where} has {count} features")
    is_code = buffer.kind in ("blocks", "zeros") and _is_below(buffer.zero, 256)
    _expect(buffer.zero is None or is_code, f"{where}: expected a code of 0 from 0 to 255, or none, got {buffer.zero}")
    if buffer.kind not in ("input", "output"):
        _expect(buffer.port == -1, f"{where}: expected port -1, got {buffer.port}")
        return
    _expect(_is_below(buffer.port, len(ports)), f"{where} is port {buffer.port}")
    own = len(ports[buffer.port])
    _expect(count == own, f"{where} has {count} features, its port {own}")


def _check_features(where: str, rows: Indices) -> None:
    ascending = rows.ndim == 1 and bool(np.all(np.diff(rows) > 0)) and (not len(rows) or int(rows[0]) >= 0)
    _expect(ascending, f"{where} has features that do not ascend from 0 on")


def _buffer(where: str, buffers: Sequence[Buffer], number: int) -> Buffer:
    _expect(_is_below(number, len(buffers)), f"{where} names buffer {number} of {len(buffers)}")
    return buffers[number]


def _is_below(number: object, end: int) -> bool:
    """Whether what a file has in the place of a number is one from 0 up to `end`."""
    return isinstance(number, int) and 0 <= number < end


def _expect(condition: bool, problem: str) -> None:
    if not condition:
        raise PartError(f"the part is damaged: {problem}")
