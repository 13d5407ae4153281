"""Pool of calls: this process as a host, calls prepared for the shapes of their inputs, and threads that wait.

The threads themselves are the caller's: each calls `serve (pool)`, and returns from it after `stop (pool)`. A thread
that waits for work spins, then sleeps until it is woken; one that waits inside a step spins, then sleeps in naps. A
thread takes a seat while a task has seats left. The call waits for the threads that have seats, and not for the others.

One call at a time has the threads, others run on the thread that makes them. `stop` announces itself before it waits
for the call under way: no call gets the threads any more, however many are made.
"""

from collections.abc import Callable
from enum import IntFlag
from typing import Final

from llvmlite import ir

from ..architectures import Architecture
from ..llvm.flow import Blocks
from ..llvm.values import I32, I64, POINTER, Number, Truth
from .python_call import CALL_FROM_PYTHON, emit_python_call
from .sizes import emit_sizes
from .slot_unpacking import emit_slot_unpacking
from .split import emit_split
from .steps import LINE, SITTING, Host, Team, Waiting, emit_relax, emit_steps, emit_team
from .table import Frame
from .words import NULL, Shared, WordCode, Words, address, number, rarely


class Pool(Team):
    """Words of a pool, the first ones of which are those of the team whose step is done."""

    generation = Shared(LINE - 1)
    """Number of steps that there have been."""
    sleepers = Shared(2 * LINE)
    stopped = Shared()
    threads = number()
    waker_cpu = Shared()
    """CPU of the thread that woke the sleepers last."""
    alone_until = Shared()
    """The time until which calls do not use the threads."""
    use = Shared(3 * LINE)
    """The flags of `Use` that are set."""
    mutex = Shared(4 * LINE)
    condition = Shared(6 * LINE)
    shares = Shared(8 * LINE)
    """The lines of `Team.claimed`."""


class PoolFrame(Frame):
    """Words of a call in this process."""

    pool = address(Pool)
    status = address(Words)
    """0, or the `Problem` of the sizes."""
    bytes = number()
    """Bytes of the memory that the call needs."""


class Use(IntFlag):
    """Flags of a pool that is in use; a call gets the threads where none is set."""

    Call = 1
    """A call has the threads."""
    Stop = 2
    """The pool is told to stop, and remains so."""


def pool_bytes(threads: int) -> int:
    """Return the bytes of a pool, zeroed and aligned to 64 bytes; `start (pool, threads)` makes it one."""
    return 8 * (Pool.shares + threads * LINE)


WAITING: Final = Waiting(
    1000,  # some tens of microseconds
    lambda code: code.call("sched_yield"),
    lambda code, time: code.call("nanosleep", time, NULL),
)

MASK_BYTES: Final = 128
"""Size of a `cpu_set_t`."""

EXPORTS: Final = {
    "prepare": (1, 0),
    "place": (2, 0),
    "run": (1, 0),
    "run_in_pool": (1, 0),
    "start": (1, 1),
    "serve": (1, 0),
    "stop": (1, 0),
    CALL_FROM_PYTHON: (2, 0),
    "unpack_slots": (2, 0),
}
"""Exported function -> its number of pointers and of 64-bit numbers."""


def pool_module(architecture: Architecture, *, linux: bool) -> str:
    """Return the LLVM IR of the runtime in this process.

    Linux likes to wake a thread on the CPU of its waker, which goes on running: there a thread moves away before it
    works.
    """
    code = WordCode(ir.Module("redpebble-calls"))
    _declare_system(code, linux=linux)
    host = Host(
        architecture,
        WAITING,
        waits_itself=False,
        alone_until=lambda frame: frame.cast(PoolFrame).pool.alone_until,
        team=_team_of_pool,
    )
    emit_relax(code, WAITING, architecture)
    _emit_report(code)
    emit_sizes(code)
    emit_split(code)
    emit_team(code, host)
    _emit_wake(code)
    _emit_parallel(code, linux=linux)
    emit_steps(code, host)
    _emit_calls(code)
    _emit_move_away(code, linux=linux)
    _emit_serve(code)
    _emit_start_and_stop(code)
    emit_python_call(code)
    emit_slot_unpacking(code, exported=True)
    return str(code.module)


def _team_of_pool(_code: WordCode, frame: Frame, _workers: Number) -> Team:
    """Emit the team of a pool, of which nobody has a seat."""
    pool = frame.cast(PoolFrame).pool
    pool.finished[0] = 0
    pool.is_over[0] = 0
    return pool


def _declare_system(code: WordCode, *, linux: bool) -> None:
    for name, count in (
        ("pthread_mutex_init", 2),
        ("pthread_mutex_lock", 1),
        ("pthread_mutex_unlock", 1),
        ("pthread_cond_init", 2),
        ("pthread_cond_wait", 2),
        ("pthread_cond_broadcast", 1),
        ("sched_yield", 0),
        ("nanosleep", 2),
    ):
        code.declare(name, I32, [POINTER] * count)
    if linux:
        code.declare("sched_getcpu", I32, [])
        for name in ("sched_getaffinity", "sched_setaffinity"):
            code.declare(name, I32, [I32, I64, POINTER])


def _emit_report(code: WordCode) -> None:
    """Emit `report (frame, problem, left, right) -> status`: the problem, which Python puts into words."""

    @code.function()
    def report(_frame: Frame, problem: Number, _left: Number, _right: Number) -> Words:
        return Words(code.builder, code.builder.inttoptr(problem.value, POINTER))


def _emit_wake(code: WordCode) -> None:
    """Emit `wake (pool)`."""

    @code.function()
    def wake(pool: Pool) -> None:
        mutex, condition = pool.mutex, pool.condition
        code.call("pthread_mutex_lock", mutex)
        code.call("pthread_cond_broadcast", condition)
        code.call("pthread_mutex_unlock", mutex)


def _emit_parallel(code: WordCode, *, linux: bool) -> None:
    """Emit `parallel (frame, function, memory, workers) -> status`: the work of the pool's team.

    The caller is number 0. It waits for the threads that have begun. The others find no seat.
    """

    @code.function()
    def parallel(frame: PoolFrame, _function: Words, _memory: Words, workers: Number) -> Words:
        pool = frame.pool
        pool.seats.swap(workers - 1)
        pool.generation.add(1, "seq_cst")
        with rarely(pool.sleepers.current("seq_cst") > 0):
            cpu = _cpu(code) if linux else -1
            pool.waker_cpu.swap(cpu)
            code.call("wake", pool)
            code.call("sched_yield")
        code.call("work", pool, 0)
        return code.null


def _cpu(code: WordCode) -> Number:
    """Return the CPU of this thread."""
    return Number(code.builder, code.builder.sext(code.call("sched_getcpu"), I64))


def _emit_calls(code: WordCode) -> None:
    """Emit `prepare (frame)` and `place (frame, memory)`, then any number of `run (frame)` or `run_in_pool (frame)`."""

    @code.function(exported=True)
    def prepare(frame: PoolFrame) -> None:
        status = code.address("evaluate", frame)
        frame.status = status
        with rarely(~status.is_null()):
            code.leave()
        scratch = frame.scratch_bytes
        areas = code.number("split", frame) * scratch
        frame.bytes = code.number("lay_out", frame, NULL) + areas

    @code.function(exported=True)
    def place(frame: PoolFrame, memory: Words) -> None:
        code.call("lay_out", frame, memory)

    @code.function(exported=True)
    def run(frame: PoolFrame) -> None:
        code.call("run_steps", frame, 1)

    @code.function(exported=True)
    def run_in_pool(frame: PoolFrame) -> None:
        pool = frame.pool
        with rarely(~pool.use.replace(0, Use.Call)):
            code.call("run_steps", frame, 1)  # another call has the threads, or they end
            code.leave()
        code.call("run_steps", frame, frame.threads)
        before = pool.use.add(-Use.Call)
        with rarely(before != Use.Call):
            code.call("wake", pool)  # `stop` waits for this call


def _emit_move_away(code: WordCode, *, linux: bool) -> None:
    """Emit `move_away (pool)`: leave the CPU of the thread that has woken this one."""

    @code.function()
    def move_away(pool: Pool) -> None:
        if not linux:
            return
        mask, whole = code.words(MASK_BYTES // 8), (ir.Constant(I32, 0), MASK_BYTES)
        own = _cpu(code)
        is_waker = own == pool.waker_cpu.current()
        with rarely(is_waker), rarely(code.number("sched_getaffinity", *whole, mask) == 0):
            word, bit = own >> 6, code.constant(1) << (own & 63)
            cpus = mask[word]
            # without this CPU the mask may be empty, which the system refuses
            for allowed in (cpus & ~bit, cpus):
                mask[word] = allowed
                code.call("sched_setaffinity", *whole, mask)


def _emit_serve(code: WordCode) -> None:
    """Emit `serve (pool)`: do tasks until the pool is stopped."""

    @code.function(exported=True)
    def serve(pool: Pool) -> None:
        seen = code.words()
        seen[0] = 0
        flow = Blocks(code.builder, "wait", "look", "sit", "work")
        flow.enter("wait")
        last = seen[0]
        code.wait_until(lambda: pool.generation.current() != last, WAITING.looks)
        with rarely(pool.generation.current() == last):
            _emit_sleep(code, pool, last)
        seen[0] = pool.generation.current()
        with rarely(pool.stopped.current() != 0):
            code.leave()
        flow.enter("look")
        seats = pool.seats.current()
        left = seats & (SITTING - 1)
        flow.branch(left > 0, "sit", "wait")
        flow.at("sit")
        flow.branch(pool.seats.replace(seats, seats + (SITTING - 1)), "work", "look")
        flow.at("work")
        code.call("work", pool, left)
        pool.seats.add(-SITTING)
        flow.go("wait")


def _emit_sleep(code: WordCode, pool: Pool, last: Number) -> None:
    """Emit a sleep until there is another generation than the last one."""
    mutex = pool.mutex
    code.call("pthread_mutex_lock", mutex)
    pool.sleepers.add(1, "seq_cst")
    _emit_doze(code, pool, lambda: pool.generation.current("seq_cst") != last)
    pool.sleepers.add(-1, "seq_cst")
    code.call("pthread_mutex_unlock", mutex)
    code.call("move_away", pool)


def _emit_doze(code: WordCode, pool: Pool, is_over: Callable[[], Truth]) -> None:
    """Emit a sleep, with the mutex, until something holds when `wake` is called."""
    flow = Blocks(code.builder, "look", "doze", "rise")
    flow.enter("look")
    flow.branch(is_over(), "rise", "doze")
    flow.at("doze")
    code.call("pthread_cond_wait", pool.condition, pool.mutex)
    flow.enter("look")
    flow.at("rise")


def _emit_start_and_stop(code: WordCode) -> None:
    @code.function(exported=True)
    def start(pool: Pool, threads: Number) -> None:
        pool.threads, pool.claimed = threads, pool.shares
        code.call("pthread_mutex_init", pool.mutex, NULL)
        code.call("pthread_cond_init", pool.condition, NULL)

    @code.function(exported=True)
    def stop(pool: Pool) -> None:
        mutex = pool.mutex
        pool.use.set_bits(Use.Stop, "seq_cst")
        code.call("pthread_mutex_lock", mutex)
        # a worker that ended amid a call would be waited for forever
        _emit_doze(code, pool, lambda: pool.use.current("seq_cst") == Use.Stop)
        code.call("pthread_mutex_unlock", mutex)
        pool.stopped.swap(1)
        pool.generation.add(1, "seq_cst")
        code.call("wake", pool)
