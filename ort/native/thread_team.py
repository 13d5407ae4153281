"""Threads of onnxruntime that do the rows of a step together: as many as come in time, which nobody knows before.

Each one that comes takes a number. The first waits a little for the others, then closes the registration; whoever comes
later finds nothing to do. The members all run, so that they can wait for each other.
"""

from typing import Final

from ...lowering.calls.steps import Team, Waiting
from ...lowering.calls.words import NULL, WordCode, rarely
from ...lowering.llvm.flow import select
from ...lowering.llvm.values import Number
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

WAITING: Final = Waiting(
    SPINS,
    lambda code: _ort(code).system_call("sched_yield"),
    lambda code, time: _ort(code).system_call("nanosleep", time.value, NULL),
)


def _ort(code: WordCode) -> OrtCode:
    assert isinstance(code, OrtCode)
    return code


def emit_join(code: OrtCode) -> None:
    """Emit `join_team (team, number)`, which ParallelFor calls."""
    _emit_close_registration(code)

    @code.function()
    def join_team(team: Team, _: Number) -> None:
        number = team.registered.add(1)
        with rarely(number >= CLOSED):
            code.leave()
        is_first = number == 0
        with rarely(is_first):
            code.call("close_registration", team)
        with rarely(~is_first):
            code.wait_until(lambda: team.members.current() != 0)
        code.call("do_shared_tiles", team, number)


def _emit_close_registration(code: OrtCode) -> None:
    """Emit `close_registration (team)`: wait a little for as many as are wanted; nobody becomes a member afterwards.

    In a session of one thread nobody ever comes. After some teams of one a node waits in a few of them only.
    """

    @code.function()
    def close_registration(team: Team) -> None:
        solo_calls = team.frame.cast(OrtFrame).solo_calls
        solo = solo_calls.current("monotonic")
        gives_up = solo >= TRIES
        gives_up &= solo % RETRY != 0
        wanted = select(gives_up, 1, team.split.workers)
        code.wait_until(lambda: team.registered.current() >= wanted, PATIENCE)
        members = team.registered.add(CLOSED)
        solo_calls.swap(select(members == 1, solo + 1, 0), "monotonic")
        team.members.swap(members)
