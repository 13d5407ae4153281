"""The steps of a call one after the other, each by one thread or by a team.

The threads of a team run the same code, which goes through phases of so many items each. A thread claims items of the
phase at hand, does them, and claims again: several times in a phase, fewer at a time towards its end. When no item
is left, it waits for the items that other threads have claimed. So nobody waits for a thread that has not begun: the
other threads do its items. A late thread finds the first phases done, and passes through them.

A thread that the system takes off its core amid its items is waited for, some milliseconds. That another program wants
the core shows: the call has then waited for longer than it would have taken to do all by itself. It does the steps of
some time by itself, so long that such losses add up to a small share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from ..architectures import Architecture
from ..llvm.flow import Blocks, branch, loop, select, when
from ..llvm.intrinsics import call_intrinsic, intrinsic
from ..llvm.values import I32, I64, VOID, Number, Truth
from .table import Failure, Frame, Split, Step
from .words import Shared, Struct, WordCode, Words, address, number, rarely

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
    is_over = Shared()
    """Whether all phases are done."""
    worked = number()
    """Ticks for which the thread with the first number has not waited."""
    napped = number()
    """1 where that thread has slept."""
    inside = Shared()
    """Number of threads at work."""
    claimed = Shared(LINE)
    """Number of items of all phases that have been claimed."""
    finished = Shared(2 * LINE)
    """Number of items of all phases that are done."""


TEAM_WORDS: Final = 3 * LINE

PATIENCE: Final = 2000
"""Looks at a flag before a thread of a team sleeps in naps: a tenth of a millisecond or so. With 256, threads slept
amid steps that had both cores."""

LOSS: Final = 1 / 16
"""Share of the time that other programs may cost: after a loss, steps are done by one thread for so much longer."""

CLAIMS: Final = 2
"""A thread claims what is left over this number and that of threads: several times in a phase, ever fewer items."""


class Member(Struct):
    """Words of one thread of a team."""

    team = address(Team)
    before = number()
    """Number of items of the phases before."""
    held = number()
    """Number of items that the thread has claimed and not done."""
    waited = number()
    """Ticks for which it has waited."""
    napped = number()
    """1 where it has slept meanwhile."""
    place = number()
    """Number of the thread in the team."""


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


@dataclass(frozen=True)
class Host:
    """A host of threads, as steps need it."""

    architecture: Architecture
    waiting: Waiting
    waits_itself: bool
    """Whether the host waits for its threads in a way of its own, too: then losses without naps of ours count."""
    alone_until: Callable[[Frame], Words]
    """Emit the address of the time until which steps are done by one thread each."""

    def ticks(self, code: WordCode) -> Number:
        """Emit the time, in ticks of a clock; 0 where the architecture has none."""
        builder, clock = code.builder, self.architecture.clock
        if not clock:
            return code.constant(0)
        if clock.startswith("llvm."):
            return Number(builder, call_intrinsic(builder, clock, I64, []))
        read = intrinsic(builder, "llvm.read_volatile_register.i64", I64, [ir.MetaDataType()])
        return Number(builder, builder.call(read, [builder.module.add_metadata([clock])]))

    def wait(self, code: WordCode, member: Member, is_true: Callable[[], Truth]) -> None:
        """Emit a wait for what threads that run soon do; then naps, in which one that does not run may get the core.

        To let others run is not enough: the system may think that it is the turn of this thread.
        """
        begun = self.ticks(code)
        code.wait_until(is_true, PATIENCE)
        with rarely(~is_true()):
            code.wait_until(is_true, before=self.waiting.looks)
            member.napped = 1
        member.waited += self.ticks(code) - begun


def emit_team(code: WordCode, host: Host) -> None:
    """Emit `claim (member, items) -> i64`, and `join_team (team, number)`, the task of each thread of a team."""
    _emit_claim(code, host)
    _emit_do_units(code)
    _emit_join_team(code, host)


def emit_steps(code: WordCode, host: Host) -> None:
    """Emit `run_steps (frame, most workers) -> status`."""
    _emit_run_step(code, host)

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
    """Return the scratch memory of a thread, behind that of all.

    The first thread has one as well: it may come when others have done phases, and then takes for itself what it reads.
    """
    size = frame.scratch_bytes
    return frame.scratch.after((number + 1) * size)


def _emit_run_step(code: WordCode, host: Host) -> None:
    """Emit `run_parallel (frame, step, split, workers) -> status`."""

    @code.function()
    def run_parallel(frame: Frame, step: Step, split: Split, workers: Number) -> Words:
        until, begun = host.alone_until(frame), host.ticks(code)
        with rarely(until.current("monotonic") > begun):
            function, rows, scratch = step.function, split.rows, frame.scratch
            function.call(*_tables(frame), scratch, 0, rows)
            code.leave(code.null)
        team = code.words(TEAM_WORDS).cast(Team)
        with loop(code.constant(TEAM_WORDS)) as index:
            team[index] = 0
        team.frame, team.step, team.split = frame, step, split
        status = code.address("parallel", frame, code.address_of("join_team"), team, workers)
        # one thread would have done the work of all
        now = host.ticks(code)
        lost = now - begun - workers * team.worked
        is_lost = lost > 0
        if not host.waits_itself:
            is_lost &= team.napped != 0
        with rarely(is_lost):
            until.swap(now + lost * round(1 / LOSS), "monotonic")
        return status


def _emit_claim(code: WordCode, host: Host) -> None:
    """Emit `claim (member, items) -> i64`: the first item of those that a thread gets, whose number is in `held`.

    What it was given before is done. It returns `items` when all items of the phase are done; the next call of this
    thread is for the next phase.
    """

    @code.function()
    def claim(member: Member, items: Number) -> Number:
        team, before, held = member.team, member.before, member.held
        most = team.split.workers * CLAIMS
        with when(held > 0, likely=True):
            team.finished.add(held)
        flow, end = Blocks(code.builder, "claim", "some", "got", "none"), before + items
        flow.enter("claim")
        first = team.claimed.current()
        flow.branch(first < end, "some", "none")
        flow.at("some")
        count = (end - first).divided_up(most)
        flow.branch(team.claimed.replace(first, first + count), "got", "claim")
        flow.at("got")
        member.held = count
        code.leave(first - before)
        flow.at("none")
        member.held = 0
        member.before = end
        # nothing follows units, when they are all rows, and only the first thread has to know that they are done
        is_last = team.split.alone == team.split.rows
        with rarely(is_last & (member.place != 0)):
            code.leave(items)
        host.wait(code, member, lambda: team.finished.current() >= end)
        return items


def _emit_do_units(code: WordCode) -> None:
    """Emit `do_units (member, scratch, rows)`: a phase whose items are so many rows each, done by one thread each."""

    @code.function()
    def do_units(member: Member, scratch: Words, rows: Number) -> None:
        team = member.team
        frame, step, unit = team.frame, team.step, team.split.unit_rows
        function, arguments = step.function, [*_tables(frame), scratch]
        # rows between units of the widest tiles begin tiles as well; others are cut into tiles unit by unit
        is_widest = step.width_table.columns == unit
        units = rows.divided_up(unit)
        flow = Blocks(code.builder, "loop", "units", "done")
        flow.enter("loop")
        first = code.number("claim", member, units)
        flow.branch(first < units, "units", "done")
        flow.at("units")
        count = member.held
        at_once = select(is_widest, count, 1)
        with loop(count.divided_up(at_once)) as index:
            begin = (first + index * at_once) * unit
            end = begin + at_once * unit
            function.call(*arguments, begin, end.smaller(rows))
        flow.go("loop")
        flow.at("done")


def _emit_join_team(code: WordCode, host: Host) -> None:
    """Emit `join_team (team, number)`: rows of which each is done by one thread, then those that all do together."""

    @code.function()
    def join_team(team: Team, number: Number) -> None:
        with rarely(team.is_over.current() != 0):
            code.leave()
        team.inside.add(1)
        frame, step, split = team.frame, team.step, team.split
        member, scratch, own = code.words(Member.word_count).cast(Member), frame.scratch, _scratch_area(frame, number)
        member.team, member.before, member.held, member.place = team, 0, 0, number
        member.waited, member.napped = 0, 0
        begun, alone, rows = host.ticks(code), split.alone, split.rows
        with rarely(alone > 0):
            code.call("do_units", member, own, alone)
        with when(alone < rows, likely=True):
            together = own, code.address_of("claim"), member
            step.shared.call(*_tables(frame), scratch, alone, rows, *together)
        with when(number == 0, likely=True):
            team.is_over.swap(1)
        team.inside.add(-1)
        with when(number == 0, likely=True):
            team.worked = host.ticks(code) - begun - member.waited
            # a host that waited for its threads might keep them from the core
            host.wait(code, member, lambda: team.inside.current() == 0)
            team.napped = member.napped
