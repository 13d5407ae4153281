"""Threads of onnxruntime that do the rows of a step together: as many as come in time, which nobody knows before.

Each one that comes takes a number. The first waits a little for the others, then closes the registration; whoever comes
later finds nothing to do. The members all run, so that they can wait for each other.
"""

from collections.abc import Sequence
from typing import Final

from llvmlite import ir

from ...lowering.calls.steps import Team, Waiting
from ...lowering.calls.table import Split
from ...lowering.calls.words import NULL, Body
from ...lowering.llvm.builder import I64, POINTER, VOID, i64
from .code import OrtCode
from .tensors import OrtFrame

CLOSED: Final = 1 << 32
"""Added to the registered threads when no more become members."""

PATIENCE: Final = 100
"""Looks of the first thread for others before it closes the registration: some microseconds."""

TRIES: Final = 4
"""Teams in a row that nobody joined before a node gives up waiting."""

RETRY: Final = 64
"""Steps from one wait to the next after that."""

SPINS: Final = 256
"""Looks at a flag before a thread lets others run, who may be those it waits for."""

YIELD: Final = 24
"""Linux on x86-64: sched_yield."""

NANOSLEEP: Final = 35
"""Linux on x86-64: nanosleep."""


def _system_call(body: Body, number: int, arguments: Sequence[ir.Value]) -> ir.Value:
    """Emit a system call, for the library has no C library; arguments are words, two at most."""
    registers = "".join(f",{{{name}}}" for name, _ in zip(("rdi", "rsi"), arguments, strict=False))
    kind = ir.FunctionType(I64, [I64, *(argument.type for argument in arguments)])
    constraint = f"={{rax}},{{rax}}{registers},~{{rcx}},~{{r11}},~{{memory}}"
    return body.builder.asm(kind, "syscall", constraint, [i64(number), *arguments], True)


WAITING: Final = Waiting(
    SPINS,
    lambda body: _system_call(body, YIELD, []),
    lambda body, time: _system_call(body, NANOSLEEP, [time, NULL]),
)


def emit_join(code: OrtCode) -> None:
    """Emit `join_team (team, number)`, which ParallelFor calls."""
    _emit_close_registration(code)
    body = code.body("join_team", VOID, [POINTER, I64])
    builder, (team, _) = body.builder, body.args
    number = body.add(team, Team.Registered, i64(1))
    with body.when(builder.icmp_signed(">=", number, i64(CLOSED))):
        builder.ret_void()
    is_first = builder.icmp_signed("==", number, i64(0))
    with body.when(is_first):
        body.call("close_registration", team)
    with body.when(builder.not_(is_first)):
        body.wait_until(lambda: builder.icmp_signed("!=", body.current(team, Team.Members), i64(0)))
    body.call("do_shared_tiles", team, number)
    builder.ret_void()


def _emit_close_registration(code: OrtCode) -> None:
    """Emit `close_registration (team)`: wait a little for as many as are wanted; nobody becomes a member afterwards.

    In a session of one thread nobody ever comes. After some teams of one a node waits in a few of them only.
    """
    body = code.body("close_registration", VOID, [POINTER])
    builder, (team,) = body.builder, body.args
    solo_calls = body.pointer(body.pointer(team, Team.Frame), OrtFrame.SoloCalls)
    solo = builder.load_atomic(solo_calls, "monotonic", 8, typ=I64)
    gives_up = builder.icmp_signed(">=", solo, i64(TRIES))
    gives_up = builder.and_(gives_up, builder.icmp_signed("!=", builder.urem(solo, i64(RETRY)), i64(0)))
    wanted = builder.select(gives_up, i64(1), body.number(body.pointer(team, Team.Split), Split.Workers))
    body.wait_until(lambda: builder.icmp_signed(">=", body.current(team, Team.Registered), wanted), PATIENCE)
    members = body.add(team, Team.Registered, i64(CLOSED))
    is_alone = builder.icmp_signed("==", members, i64(1))
    body.swap(solo_calls, 0, builder.select(is_alone, builder.add(solo, i64(1)), i64(0)), "monotonic")
    body.swap(team, Team.Members, members)
    builder.ret_void()
