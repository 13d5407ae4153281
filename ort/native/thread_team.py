"""Threads of onnxruntime that do the rows of a step together: as many as come in time, which nobody knows before.

Each one that comes takes a number. The first waits a little for the others, then closes the door; whoever comes later
finds nothing to do. Those inside all run, so that they can wait for each other.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from llvmlite import ir

from redpebble.lowering.llvm.builder import I64, POINTER, VOID, i64
from redpebble.ort.native.code import AddressOf, Body, OrtCode
from redpebble.ort.native.sizes import Frame
from redpebble.ort.native.split import shares
from redpebble.ort.native.tables import Header, Step

LINE: Final = 8
"""Words of a cache line; what threads count in has one of its own."""


class Crew(IntEnum):
    """Words of the memory that a crew shares."""

    Frame = 0
    Step = 1
    Scratch = 2
    Rows = 3
    Wanted = 4
    Come = LINE
    """Threads that have come, and `CLOSED` when the door is."""
    Inside = 2 * LINE
    """The threads of the crew, 0 before the door is closed."""
    Waiting = 3 * LINE
    Meetings = 4 * LINE


CREW_WORDS: Final = 5 * LINE
CLOSED: Final = 1 << 32
PATIENCE: Final = 100
"""Looks of the first thread for others before it closes the door: some microseconds."""

TRIES, SELDOM = 4, 64
"""Calls in a row in which nobody came before a node gives up waiting, and how seldom it waits again then."""

LOOKS: Final = 256
"""Looks at a flag before a thread lets others run, who may be those it waits for."""

LOOKS_BETWEEN: Final = 32
"""Looks between two times that it does so."""

YIELD: Final = 24
"""Linux on x86-64: sched_yield."""


def emit_crew(code: OrtCode) -> None:
    """Emit `join_crew (crew, number)`, which ParallelFor calls."""
    _emit_rest(code)
    _emit_meet(code)
    _emit_close_door(code)
    _emit_do_share(code)
    _emit_join(code)


def _pause(body: Body) -> None:
    body.builder.asm(ir.FunctionType(VOID, []), "pause", "~{memory}", [], True)


def _load(body: Body, crew: ir.Value, word: Crew) -> ir.Value:
    return body.builder.load_atomic(body.at(crew, word), "acquire", 8, typ=I64)


def _add(body: Body, crew: ir.Value, word: Crew, number: int) -> ir.Value:
    """Add to a count; return what it was."""
    return body.builder.atomic_rmw("add", body.at(crew, word), i64(number), "acq_rel")


def _emit_rest(code: OrtCode) -> None:
    """Emit `rest (i64 looks)`: pause, and let other threads run where one has looked for long."""
    body = code.body("rest", VOID, [I64])
    builder, (looks,) = body.builder, body.args
    _pause(body)
    is_turn = builder.icmp_signed("==", builder.and_(looks, i64(LOOKS_BETWEEN - 1)), i64(LOOKS_BETWEEN - 1))
    is_tired = builder.and_(is_turn, builder.icmp_signed(">=", looks, i64(LOOKS)))
    with body.when(is_tired):
        builder.asm(ir.FunctionType(I64, [I64]), "syscall", "={rax},{rax},~{rcx},~{r11},~{memory}", [i64(YIELD)], True)
    builder.ret_void()


def _emit_meet(code: OrtCode) -> None:
    """Emit `meet (crew)`, which returns when all threads inside have called it."""
    body = code.body("meet", VOID, [POINTER])
    builder, (crew,) = body.builder, body.args
    before = _load(body, crew, Crew.Meetings)
    here = builder.add(_add(body, crew, Crew.Waiting, 1), i64(1))
    with body.when(builder.icmp_signed("==", here, _load(body, crew, Crew.Inside))):
        builder.atomic_rmw("xchg", body.at(crew, Crew.Waiting), i64(0), "monotonic")
        _add(body, crew, Crew.Meetings, 1)
        builder.ret_void()
    _wait_until(body, lambda: builder.icmp_signed("!=", _load(body, crew, Crew.Meetings), before))
    builder.ret_void()


def _wait_until(body: Body, is_true: Callable[[], ir.Value], patience: int | None = None) -> None:
    """Emit a wait until a condition holds, or for no more than `patience` looks."""
    builder, looks = body.builder, body.words(1)
    body.put(looks, 0, i64(0))
    look, again, done = (builder.append_basic_block(name) for name in ("look", "again", "done"))
    builder.branch(look)
    builder.position_at_end(look)
    holds = is_true()
    if patience is not None:
        holds = builder.or_(holds, builder.icmp_signed(">=", body.number(looks), i64(patience)))
    builder.cbranch(holds, done, again)
    builder.position_at_end(again)
    body.call("rest", body.number(looks))
    body.put(looks, 0, builder.add(body.number(looks), i64(1)))
    builder.branch(look)
    builder.position_at_end(done)


def _emit_close_door(code: OrtCode) -> None:
    """Emit `close_door (crew)`: wait for as many as are wanted, a little; then nobody else comes in.

    In a session of one thread nobody ever comes. After some calls alone a node waits in a few of them only.
    """
    body = code.body("close_door", VOID, [POINTER])
    builder, (crew,) = body.builder, body.args
    company = body.pointer(body.pointer(crew, Crew.Frame), Frame.Company)
    alone = builder.load_atomic(company, "monotonic", 8, typ=I64)
    gives_up = builder.icmp_signed(">=", alone, i64(TRIES))
    gives_up = builder.and_(gives_up, builder.icmp_signed("!=", builder.urem(alone, i64(SELDOM)), i64(0)))
    wanted = builder.select(gives_up, i64(1), body.number(crew, Crew.Wanted))
    _wait_until(body, lambda: builder.icmp_signed(">=", _load(body, crew, Crew.Come), wanted), PATIENCE)
    inside = _add(body, crew, Crew.Come, CLOSED)
    is_alone = builder.icmp_signed("==", inside, i64(1))
    builder.atomic_rmw("xchg", company, builder.select(is_alone, builder.add(alone, i64(1)), i64(0)), "monotonic")
    builder.atomic_rmw("xchg", body.at(crew, Crew.Inside), inside, "acq_rel")
    builder.ret_void()


def _emit_do_share(code: OrtCode) -> None:
    """Emit `do_share (crew, number)`: own tiles, then those that all do together."""
    body = code.body("do_share", VOID, [POINTER, I64])
    builder, (crew, number) = body.builder, body.args
    frame, step, scratch = (body.pointer(crew, word) for word in (Crew.Frame, Crew.Step, Crew.Scratch))
    header, rows, threads = (
        body.pointer(frame, Frame.Header),
        body.number(crew, Crew.Rows),
        _load(body, crew, Crew.Inside),
    )
    own = body.behind(scratch, builder.mul(number, body.number(header, Header.ScratchBytes)))
    tables = [
        body.pointer(frame, Frame.Buffers),
        body.pointer(header, Header.Constants),
        body.pointer(frame, Frame.Values),
    ]
    with body.when(builder.icmp_signed("==", threads, i64(1))):
        body.call_at(body.pointer(step, Step.Function), VOID, [*tables, scratch, i64(0), rows])
        builder.ret_void()
    share, rest = shares(body, (frame, step), rows, threads)
    begin = builder.mul(number, share)
    with body.when(builder.icmp_signed(">", share, i64(0))):
        span = [begin, builder.add(begin, share)]
        body.call_at(body.pointer(step, Step.Function), VOID, [*tables, own, *span])
    with body.when(builder.icmp_signed(">", rest, i64(0)), likely=True):
        with body.when(builder.icmp_signed(">", share, i64(0))):
            body.call("meet", crew)  # the first thread's scratch memory becomes everybody's
        meet = AddressOf(code.functions["meet"])
        span = [builder.sub(rows, rest), rows]
        arguments = [*tables, scratch, *span, own, meet, crew, number, threads]
        body.call_at(body.pointer(step, Step.Shared), VOID, arguments)
    builder.ret_void()


def _emit_join(code: OrtCode) -> None:
    body = code.body("join_crew", VOID, [POINTER, I64])
    builder, (crew, _) = body.builder, body.args
    number = _add(body, crew, Crew.Come, 1)
    with body.when(builder.icmp_signed(">=", number, i64(CLOSED))):
        builder.ret_void()
    is_first = builder.icmp_signed("==", number, i64(0))
    with body.when(is_first):
        body.call("close_door", crew)
    with body.when(builder.not_(is_first)):
        _wait_until(body, lambda: builder.icmp_signed("!=", _load(body, crew, Crew.Inside), i64(0)))
    body.call("do_share", crew, number)
    builder.ret_void()
