"""The steps of a call one after the other, each by one thread, by threads that take chunks, or by a team."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from llvmlite import ir

from ..llvm.builder import I64, POINTER, VOID, i64
from .split import shares
from .table import Failure, Frame, Header, Split, Step
from .words import NULL, Body, WordCode

LINE: Final = 8
"""Words of a cache line; what threads count in has one of its own."""


LOOKS: Final = 32
"""Looks at a flag between two times that a thread which waits lets others run; a power of two."""

YIELDS: Final = 1000
"""Times that a thread which waits lets others run before it sleeps: a few milliseconds. Calls come in bursts, and to
wake a thread takes as long as a small call."""

NAP_NANOSECONDS: Final = 50_000
"""Time that a thread sleeps between two looks: little beside the milliseconds that it has waited by then."""


class Team(IntEnum):
    """Words that the threads of a step share."""

    Frame = 0
    Step = 1
    Split = 2
    NextRow = LINE
    """First row of the next chunk."""
    Registered = 2 * LINE
    """Number of threads that have asked to take part, where the host does not know how many come."""
    Members = 3 * LINE
    """Number of threads that do tiles together; 0 while it is not known."""
    Waiting = 4 * LINE
    """Number of members at the barrier."""
    Barriers = 5 * LINE
    """Number of barriers that all have passed."""


TEAM_WORDS: Final = 6 * LINE


@dataclass(frozen=True)
class Waiting:
    """The ways in which threads of a host wait: they spin, then let others run, then sleep in naps."""

    spins: int
    """Looks at a flag before a thread lets others run for the first time."""
    let_others_run: Callable[[Body], object]
    """Emit that this thread goes behind the others that could run."""
    nap: Callable[[Body, ir.Value], object]
    """Emit a sleep for the seconds and nanoseconds in two words of memory."""

    @property
    def looks(self) -> int:
        """Looks at a flag before a thread sleeps."""
        return self.spins + YIELDS * LOOKS


def emit_relax(code: WordCode, waiting: Waiting, *, x86: bool) -> None:
    """Emit `relax (looks)`, for a thread that has looked at a flag so often; only x86 can tell the core to pause."""
    body = code.body("relax", VOID, [I64])
    builder, (looks,) = body.builder, body.args
    if x86:
        builder.asm(ir.FunctionType(VOID, []), "pause", "~{memory}", [], True)
    is_turn = builder.icmp_signed("==", builder.and_(looks, i64(LOOKS - 1)), i64(LOOKS - 1))
    with body.when(builder.or_(builder.not_(is_turn), builder.icmp_signed("<", looks, i64(waiting.spins)))):
        builder.ret_void()
    with body.when(builder.icmp_signed("<", looks, i64(waiting.looks))):
        waiting.let_others_run(body)
        builder.ret_void()
    time = body.words(2)
    body.put(time, 0, i64(0))
    body.put(time, 1, i64(NAP_NANOSECONDS))
    waiting.nap(body, time)
    builder.ret_void()


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
    body = code.body("run_steps", POINTER, [POINTER, I64])
    builder, (frame, most) = body.builder, body.args
    header, splits = body.pointer(frame, Frame.Header), body.pointer(frame, Frame.Splits)
    with body.each(body.number(header, Header.Steps)) as index:
        step = body.at(body.pointer(header, Header.StepTable), builder.mul(index, i64(len(Step))))
        split = body.at(splits, builder.mul(index, i64(len(Split))))
        workers = body.smaller(body.number(split, Split.Workers), most)
        with builder.if_else(builder.icmp_signed("<=", workers, i64(1)), likely=True) as (serial, parallel):
            with serial:
                rows = body.number(split, Split.Rows)
                scratch = body.pointer(frame, Frame.Scratch)
                body.run_function(body.pointer(step, Step.Function), [*_tables(body, frame), scratch, i64(0), rows])
                with body.when(builder.icmp_signed("!=", body.number(step, Step.MayFail), i64(0))):
                    problem, left, right = (body.number(scratch, word) for word in Failure)
                    with body.when(builder.icmp_signed("!=", problem, i64(0))):
                        builder.ret(body.call("report", frame, problem, left, right))
            with parallel:
                body.pass_on(body.call("run_parallel", frame, step, split, workers))
    builder.ret(NULL)


def _tables(body: Body, frame: ir.Value) -> Sequence[ir.Value]:
    """Return buffers, constants and sizes, the first arguments of a step."""
    constants = body.pointer(body.pointer(frame, Frame.Header), Header.Constants)
    return body.pointer(frame, Frame.Buffers), constants, body.pointer(frame, Frame.Values)


def _scratch_area(body: Body, frame: ir.Value, number: ir.Value) -> ir.Value:
    """Return the scratch memory of a thread."""
    size = body.number(body.pointer(frame, Frame.Header), Header.ScratchBytes)
    return body.behind(body.pointer(frame, Frame.Scratch), body.builder.mul(number, size))


def _emit_run_step(code: WordCode, *, registers: bool) -> None:
    """Emit `run_parallel (frame, step, split, workers) -> status`."""
    body = code.body("run_parallel", POINTER, [POINTER, POINTER, POINTER, I64])
    builder, (frame, step, split, workers) = body.builder, body.args
    team = body.words(TEAM_WORDS)
    with body.each(i64(TEAM_WORDS)) as index:
        body.put(team, index, i64(0))
    body.put(team, Team.Frame, frame)
    body.put(team, Team.Step, step)
    body.put(team, Team.Split, split)
    if not registers:
        body.put(team, Team.Members, workers)
    with body.when(builder.icmp_signed(">", body.number(split, Split.ChunkRows), i64(0))):
        builder.ret(body.call("parallel", frame, body.address_of("do_chunks"), team, workers))
    shared = body.address_of("join_team" if registers else "do_shared_tiles")
    builder.ret(body.call("parallel", frame, shared, team, workers))


def _emit_do_chunks(code: WordCode) -> None:
    """Emit `do_chunks (team, number)`: take chunks until none is left, with the scratch memory of that number."""
    body = code.body("do_chunks", VOID, [POINTER, I64])
    builder, (team, number) = body.builder, body.args
    frame, split = body.pointer(team, Team.Frame), body.pointer(team, Team.Split)
    rows, chunk_rows = body.number(split, Split.Rows), body.number(split, Split.ChunkRows)
    function = body.pointer(body.pointer(team, Team.Step), Step.Function)
    arguments = [*_tables(body, frame), _scratch_area(body, frame, number)]
    loop, chunk, done = (builder.append_basic_block(name) for name in ("loop", "chunk", "done"))
    builder.branch(loop)
    builder.position_at_end(loop)
    begin = body.add(team, Team.NextRow, chunk_rows, "monotonic")
    builder.cbranch(builder.icmp_signed("<", begin, rows), chunk, done)
    builder.position_at_end(chunk)
    end = body.smaller(builder.add(begin, chunk_rows), rows)
    body.run_function(function, [*arguments, begin, end])
    builder.branch(loop)
    builder.position_at_end(done)
    builder.ret_void()


def _emit_meet(code: WordCode) -> None:
    """Emit `meet (team)`, which returns when all members have called it."""
    body = code.body("meet", VOID, [POINTER])
    builder, (team,) = body.builder, body.args
    before = body.current(team, Team.Barriers)
    here = builder.add(body.add(team, Team.Waiting, i64(1)), i64(1))
    with body.when(builder.icmp_signed("==", here, body.current(team, Team.Members))):
        body.swap(team, Team.Waiting, i64(0), "monotonic")
        body.add(team, Team.Barriers, i64(1))
        builder.ret_void()
    body.wait_until(lambda: builder.icmp_signed("!=", body.current(team, Team.Barriers), before))
    builder.ret_void()


def _emit_do_shared_tiles(code: WordCode) -> None:
    """Emit `do_shared_tiles (team, number)`: own tiles, then those that all do together."""
    body = code.body("do_shared_tiles", VOID, [POINTER, I64])
    builder, (team, number) = body.builder, body.args
    frame, step = body.pointer(team, Team.Frame), body.pointer(team, Team.Step)
    rows, threads = body.number(body.pointer(team, Team.Split), Split.Rows), body.current(team, Team.Members)
    tables, scratch = _tables(body, frame), body.pointer(frame, Frame.Scratch)
    function = body.pointer(step, Step.Function)
    with body.when(builder.icmp_signed("==", threads, i64(1))):
        body.run_function(function, [*tables, scratch, i64(0), rows])
        builder.ret_void()
    own = _scratch_area(body, frame, number)
    share, rest = shares(body, step, rows, threads)
    begin, has_own = builder.mul(number, share), builder.icmp_signed(">", share, i64(0))
    with body.when(has_own):
        body.run_function(function, [*tables, own, begin, builder.add(begin, share)])
    with body.when(builder.icmp_signed(">", rest, i64(0)), likely=True):
        with body.when(has_own):
            body.call("meet", team)  # the first thread's scratch memory becomes everybody's
        arguments = [*tables, scratch, builder.sub(rows, rest), rows, own, body.address_of("meet"), team]
        body.run_function(body.pointer(step, Step.Shared), [*arguments, number, threads])
    builder.ret_void()
