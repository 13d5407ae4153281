"""The steps of a call one after the other, each by one thread, by threads that take chunks, or by a team."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from ..architectures import Architecture
from ..llvm.flow import Blocks, branch, loop, when
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import I32, VOID, Number
from .split import shares
from .table import Failure, Frame, Split, Step
from .words import Shared, Struct, WordCode, Words, address, rarely

LINE: Final = 8
"""Words of a cache line; what threads count in has one of its own."""


LOOKS: Final = 32
"""Looks at a flag between two times that a thread which waits lets others run; a power of two."""

YIELDS: Final = 1000
"""Times that a thread which waits lets others run before it sleeps: a few milliseconds. Calls come in bursts, and to
wake a thread takes as long as a small call."""

NAP_NANOSECONDS: Final = 50_000
"""Time that a thread sleeps between two looks: little beside the milliseconds that it has waited by then."""


class Team(Struct):
    """Words that the threads of a step share."""

    frame = address(Frame)
    step = address(Step)
    split = address(Split)
    next_row = Shared(LINE)
    """First row of the next chunk."""
    registered = Shared(2 * LINE)
    """Number of threads that have asked to take part, where the host does not know how many come."""
    members = Shared(3 * LINE)
    """Number of threads that do tiles together; 0 while it is not known."""
    waiting = Shared(4 * LINE)
    """Number of members at the barrier."""
    barriers = Shared(5 * LINE)
    """Number of barriers that all have passed."""


TEAM_WORDS: Final = 6 * LINE


@dataclass(frozen=True)
class Waiting:
    """The ways in which threads of a host wait: they spin, then let others run, then sleep in naps."""

    spins: int
    """Looks at a flag before a thread lets others run for the first time."""
    let_others_run: Callable[[WordCode], object]
    """Emit that this thread goes behind the others that could run."""
    nap: Callable[[WordCode, Words], object]
    """Emit a sleep for the seconds and nanoseconds in two words of memory."""

    @property
    def looks(self) -> int:
        """Looks at a flag before a thread sleeps."""
        return self.spins + YIELDS * LOOKS


def emit_relax(code: WordCode, waiting: Waiting, architecture: Architecture) -> None:
    """Emit `relax (looks)`, for a thread that has looked at a flag so often."""

    @code.function()
    def relax(looks: Number) -> None:
        if architecture.pause:
            words = [ir.Constant(I32, word) for word in architecture.pause_arguments]
            call_intrinsic(code.builder, architecture.pause, VOID, words)
        is_turn = looks & (LOOKS - 1) == LOOKS - 1
        with rarely(~is_turn | (looks < waiting.spins)):
            code.leave()
        with rarely(looks < waiting.looks):
            waiting.let_others_run(code)
            code.leave()
        time = code.words(2)
        time[0] = 0
        time[1] = NAP_NANOSECONDS
        waiting.nap(code, time)


def emit_team(code: WordCode) -> None:
    """Emit `do_chunks (team, number)`, `do_shared_tiles (team, number)`, and `meet (team)`."""
    _emit_meet(code)
    _emit_do_chunks(code)
    _emit_do_shared_tiles(code)


def emit_steps(code: WordCode, *, registers: bool) -> None:
    """Emit `run_steps (frame, most workers) -> status`.

    Where a host's threads have to register it has emitted `join_team (team, number)`, which leads to `do_shared_tiles`.
    """
    _emit_run_step(code, registers=registers)

    @code.function()
    def run_steps(frame: Frame, most: Number) -> Words:
        header, splits = frame.header, frame.splits
        with loop(header.steps) as index:
            step, split = header.step_table.row(index), splits.row(index)
            workers = split.workers.smaller(most)

            def by_one() -> None:
                rows, scratch = split.rows, frame.scratch
                step.function.call(*_tables(frame), scratch, 0, rows)
                with rarely(step.may_fail != 0):
                    failure = scratch.cast(Failure)
                    problem, left, right = failure.problem, failure.left, failure.right
                    with rarely(problem != 0):
                        code.leave(code.address("report", frame, problem, left, right))

            def by_several() -> None:
                code.address("run_parallel", frame, step, split, workers).pass_on()

            branch(workers <= 1, by_one, by_several, likely=True)
        return code.null


def _tables(frame: Frame) -> Sequence[Words]:
    """Return buffers, constants and sizes, the first arguments of a step."""
    constants = frame.header.constants
    return frame.buffers, constants, frame.values


def _scratch_area(frame: Frame, number: Number) -> Words:
    """Return the scratch memory of a thread."""
    size = frame.scratch_bytes
    return frame.scratch.after(number * size)


def _emit_run_step(code: WordCode, *, registers: bool) -> None:
    """Emit `run_parallel (frame, step, split, workers) -> status`."""

    @code.function()
    def run_parallel(frame: Frame, step: Step, split: Split, workers: Number) -> Words:
        team = code.words(TEAM_WORDS).cast(Team)
        with loop(code.constant(TEAM_WORDS)) as index:
            team[index] = 0
        team.frame, team.step, team.split = frame, step, split
        if not registers:
            team.members[0] = workers
        with rarely(split.chunk_rows > 0):
            code.leave(code.address("parallel", frame, code.address_of("do_chunks"), team, workers))
        shared = code.address_of("join_team" if registers else "do_shared_tiles")
        return code.address("parallel", frame, shared, team, workers)


def _emit_do_chunks(code: WordCode) -> None:
    """Emit `do_chunks (team, number)`: take chunks until none is left, with the scratch memory of that number."""

    @code.function()
    def do_chunks(team: Team, number: Number) -> None:
        frame, split = team.frame, team.split
        rows, chunk_rows, function = split.rows, split.chunk_rows, team.step.function
        arguments = [*_tables(frame), _scratch_area(frame, number)]
        flow = Blocks(code.builder, "loop", "chunk", "done")
        flow.enter("loop")
        begin = team.next_row.add(chunk_rows, "monotonic")
        flow.branch(begin < rows, "chunk", "done")
        flow.at("chunk")
        function.call(*arguments, begin, (begin + chunk_rows).smaller(rows))
        flow.enter("loop")
        flow.at("done")


def _emit_meet(code: WordCode) -> None:
    """Emit `meet (team)`, which returns when all members have called it."""

    @code.function()
    def meet(team: Team) -> None:
        before = team.barriers.current()
        here = team.waiting.add(1) + 1
        with rarely(here == team.members.current()):
            team.waiting.swap(0, "monotonic")
            team.barriers.add(1)
            code.leave()
        code.wait_until(lambda: team.barriers.current() != before)


def _emit_do_shared_tiles(code: WordCode) -> None:
    """Emit `do_shared_tiles (team, number)`: own tiles, then those that all do together."""

    @code.function()
    def do_shared_tiles(team: Team, number: Number) -> None:
        frame, step = team.frame, team.step
        rows, threads = team.split.rows, team.members.current()
        tables, scratch = _tables(frame), frame.scratch
        function = step.function
        with rarely(threads == 1):
            function.call(*tables, scratch, 0, rows)
            code.leave()
        own = _scratch_area(frame, number)
        share, rest = shares(step, rows, threads)
        begin, has_own = number * share, share > 0
        with rarely(has_own):
            function.call(*tables, own, begin, begin + share)
        with when(rest > 0, likely=True):
            with rarely(has_own):
                code.call("meet", team)  # the first thread's scratch memory becomes everybody's
            begin, team_arguments = rows - rest, (own, code.address_of("meet"), team, number, threads)
            step.shared.call(*tables, scratch, begin, rows, *team_arguments)
