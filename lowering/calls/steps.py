"""The steps of a call one after the other, each by one thread or by a team.

The threads of a team run the same code, which goes through phases of so many items each. Each thread has a share of
the items, the same one in each call, so that what it reads and writes is in its core's caches. It claims half of what
is left of its share, does it, and claims again; then it does so with the shares of the others. When no item is left, it
waits for the items that other threads have claimed, at the latest before it claims some of the next phase. So nobody
waits for a thread that has not begun: the other threads do its items. A late thread finds the first phases done, and
passes through them.

To hand a cache line to another core takes 0.1 to 0.3 microseconds, as long as some hundred multiplications: a thread
finds what it needs to begin in one line, claims from its own share in a line that others read only when they have
nothing left, and tells that items are done only where another phase follows.

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


SITTING: Final = 1 << 32
"""A thread that takes a seat adds this to `Team.seats`, which has the number of those left below."""


class Team(Struct):
    """Words that the threads of a step share."""

    frame = address(Frame)
    step = address(Step)
    split = address(Split)
    claimed = address(Words)
    """For each thread a line, whose first word says up to which item those of its shares are claimed."""
    base = number()
    """Number that is taken off the words of `claimed`, which count on from step to step."""
    is_over = Shared()
    """Whether all phases are done."""
    seats = Shared()
    """Seats that are left, and `SITTING` for each thread that has one, beside the first thread."""
    finished = Shared(LINE)
    """Number of items that are done, but for those of the last phase, for which nobody waits."""
    worked = number()
    """Ticks for which the thread with the first number has not waited."""
    napped = number()
    """1 where that thread has slept."""


TEAM_WORDS: Final = 2 * LINE

PATIENCE: Final = 10_000
"""Looks at a flag before a thread of a team sleeps in naps: a tenth of a millisecond or more. With 2000, threads slept
amid steps that had both cores, where one was slower than the other."""

LOSS: Final = 1 / 16
"""Share of the time that other programs may cost: after a loss, steps are done by one thread for so much longer."""


class Member(Struct):
    """Words of one thread of a team."""

    team = address(Team)
    before = number()
    """Number of items of the phases before."""
    held = number()
    """Number of items that the thread has claimed and not done."""
    done = number()
    """Number of items that it has done, and not added to those that are finished."""
    meets = number()
    """Whether what follows a phase reads what others have made in it, before another phase begins."""
    share = number()
    """The thread from whose share items are claimed."""
    visited = number()
    """Number of shares in which no item was left."""
    workers = number()
    claimed = address(Words)
    """A word of the team, like the next one: others write beside them in their line meanwhile."""
    base = number()
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


def new_team(code: WordCode, _: Frame, workers: Number) -> Team:
    """Emit words of a team on the stack."""
    count = workers * LINE + TEAM_WORDS
    team = code.fresh_words(count).cast(Team)
    with loop(count) as index:
        team[index] = 0
    team.claimed = team.at(TEAM_WORDS)
    return team


@dataclass(frozen=True)
class Host:
    """A host of threads, as steps need it."""

    architecture: Architecture
    waiting: Waiting
    waits_itself: bool
    """Whether the host waits for its threads in a way of its own, too: then losses without naps of ours count."""
    alone_until: Callable[[Frame], Words]
    """Emit the address of the time until which steps are done by one thread each."""
    team: Callable[[WordCode, Frame, Number], Team] = new_team
    """Emit the words of a team of so many threads."""

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
    """Emit `claim (member, items) -> i64`, `work (team, number)` for each thread of a team, and `join_team`, with the
    same parameters, for hosts that do not count who is at work."""
    _emit_claim(code, host)
    _emit_do_units(code)
    _emit_work(code, host)
    _emit_join_team(code)


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
        team = host.team(code, frame, workers)
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

    Each thread has a share of the items, of which it claims half of what is left, again and again; then it does so with
    the shares of the others. What it was given before is done. It returns `items` when no item is left, and all are
    done where the threads meet; else the next phase begins when they are. The next call is for the next phase.
    """

    def finish(member: Member) -> None:
        team, done = member.team, member.done
        with when(done > 0, likely=True):
            team.finished.add(done)
            member.done = 0

    @code.function()
    def claim(member: Member, items: Number) -> Number:
        team, before, held, workers = member.team, member.before, member.held, member.workers
        claimed, base = member.claimed, member.base
        member.done += held
        with rarely((held == 0) & (before > 0)):
            finish(member)
            host.wait(code, member, lambda: team.finished.current() >= before)
        flow = Blocks(code.builder, "claim", "some", "got", "next", "none")
        flow.enter("claim")
        share = member.share
        begin, end = ((items * number) // workers + before for number in (share, share + 1))
        word = claimed.at(share * LINE)
        known = word.current()
        first = begin.larger(known - base)
        flow.branch(first < end, "some", "next")
        flow.at("some")
        count = (end - first).divided_up(2)
        flow.branch(word.replace(known, first + count + base), "got", "claim")
        flow.at("got")
        member.held = count
        code.leave(first - before)
        flow.at("next")
        member.share = select(share + 1 == workers, 0, share + 1)
        visited = member.visited + 1
        member.visited = visited
        flow.branch(visited < workers, "claim", "none")
        flow.at("none")
        end_of_phase = before + items
        member.held, member.visited, member.share, member.before = 0, 0, member.place, end_of_phase
        with rarely(member.meets != 0):
            finish(member)
            host.wait(code, member, lambda: team.finished.current() >= end_of_phase)
        return items


def _emit_do_units(code: WordCode) -> None:
    """Emit `do_units (member, scratch, rows)`: a phase whose items are so many rows each, done by one thread each."""

    @code.function()
    def do_units(member: Member, scratch: Words, rows: Number) -> None:
        team = member.team
        frame, step, unit = team.frame, team.step, team.split.unit_rows
        function, arguments = step.function, [*_tables(frame), scratch]
        member.meets = 0
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


def _emit_work(code: WordCode, host: Host) -> None:
    """Emit `work (team, number)`: rows of which each is done by one thread, then those that all do together.

    The first thread waits for the others that are at work.
    """

    @code.function()
    def work(team: Team, number: Number) -> None:
        frame, step, split = team.frame, team.step, team.split
        member, scratch, own = code.words(Member.word_count).cast(Member), frame.scratch, _scratch_area(frame, number)
        member.team, member.workers, member.before, member.held, member.done = team, split.workers, 0, 0, 0
        member.claimed, member.base, member.share, member.visited = team.claimed, team.base, number, 0
        member.place, member.meets = number, 1
        member.waited, member.napped = 0, 0
        begun, alone, rows = host.ticks(code), split.alone, split.rows
        with rarely(alone > 0):
            code.call("do_units", member, own, alone)
        with when(alone < rows, likely=True):
            together = own, code.address_of("claim"), member
            step.shared.call(*_tables(frame), scratch, alone, rows, *together)
        with rarely(number != 0):
            code.leave()
        team.is_over.swap(1)
        team.seats.keep_bits(-SITTING)
        team.worked = host.ticks(code) - begun - member.waited
        # a host that waited for its threads might keep them from the core
        host.wait(code, member, lambda: team.seats.current() == 0)
        team.base += member.before
        team.napped = member.napped


def _emit_join_team(code: WordCode) -> None:
    """Emit `join_team (team, number)`: work on what is left."""

    @code.function()
    def join_team(team: Team, number: Number) -> None:
        with rarely(team.is_over.current() != 0):
            code.leave()
        is_other = number != 0
        with when(is_other):
            team.seats.add(SITTING)
        code.call("work", team, number)
        with when(is_other):
            team.seats.add(-SITTING)
