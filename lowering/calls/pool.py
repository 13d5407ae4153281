"""Pool of calls: this process as a host, calls prepared for the shapes of their inputs, and threads that wait.

The threads themselves are the caller's: each calls `serve (pool, number)` with a number from 1 on, and returns from it
after `stop (pool)`. A thread that waits for work spins, then sleeps until it is woken; one that waits inside a step
spins, then sleeps in naps.

One call at a time has the threads, others run on the thread that makes them. `stop` announces itself before it waits
for the call under way: no call gets the threads any more, however many are made.
"""

from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import Final

from llvmlite import ir

from ..llvm.builder import I32, I64, POINTER, VOID, i64
from .python_call import CALL_FROM_PYTHON, emit_python_call
from .sizes import emit_sizes
from .split import emit_split
from .steps import LINE, Waiting, emit_relax, emit_steps, emit_team
from .table import Frame, Header
from .words import NULL, Body, WordCode


class PoolFrame(IntEnum):
    """Words of a call in this process, behind those of `Frame`."""

    Pool = len(Frame)
    Status = len(Frame) + 1
    """0, or the `Problem` of the sizes."""
    Bytes = len(Frame) + 2
    """Bytes of the memory that the call needs."""


FRAME_WORDS: Final = len(Frame) + len(PoolFrame)


class Pool(IntEnum):
    """Words of a pool."""

    Generation = 0
    """Number of tasks that there have been."""
    Finished = LINE
    """Number of workers that are done with the task."""
    Sleepers = 2 * LINE
    Stopped = 2 * LINE + 1
    Threads = 2 * LINE + 2
    WakerCpu = 2 * LINE + 3
    """CPU of the thread that woke the sleepers last."""
    Use = 3 * LINE
    """The flags of `Use` that are set."""
    Function = 4 * LINE
    """Task: `void (memory, number)`, its memory, and the threads that do it."""
    Memory = 4 * LINE + 1
    Workers = 4 * LINE + 2
    Mutex = 5 * LINE
    Condition = 7 * LINE


class Use(IntFlag):
    """Flags of a pool that is in use; a call gets the threads where none is set."""

    Call = 1
    """A call has the threads."""
    Stop = 2
    """The pool is told to stop, and remains so."""


POOL_BYTES: Final = 640
"""Zeroed memory for a pool, aligned to 64 bytes; `start (pool, threads)` makes it one."""

WAITING: Final = Waiting(
    1000,  # some tens of microseconds
    lambda body: body.call("sched_yield"),
    lambda body, time: body.call("nanosleep", time, NULL),
)

MASK_BYTES: Final = 128
"""Size of a `cpu_set_t`."""

EXPORTS: Final = {
    "prepare": (1, 0),
    "place": (2, 0),
    "run": (1, 0),
    "run_in_pool": (1, 0),
    "start": (1, 1),
    "serve": (1, 1),
    "stop": (1, 0),
    CALL_FROM_PYTHON: (2, 0),
}
"""Exported function -> its number of pointers and of 64-bit numbers."""


def pool_module(*, x86: bool, linux: bool) -> str:
    """Return the LLVM IR of the runtime in this process.

    Linux likes to wake a thread on the CPU of its waker, which goes on running: there a thread moves away before it
    works.
    """
    code = WordCode(ir.Module("redpebble-calls"))
    _declare_system(code, linux=linux)
    emit_relax(code, WAITING, x86=x86)
    _emit_report(code)
    emit_sizes(code)
    emit_split(code)
    emit_team(code)
    _emit_wake(code)
    _emit_parallel(code, linux=linux)
    emit_steps(code, registers=False)
    _emit_calls(code)
    _emit_move_away(code, linux=linux)
    _emit_serve(code)
    _emit_start_and_stop(code)
    emit_python_call(code)
    return str(code.module)


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
    body = code.body("report", POINTER, [POINTER, I64, I64, I64])
    body.builder.ret(body.builder.inttoptr(body.args[1], POINTER))


def _emit_wake(code: WordCode) -> None:
    """Emit `wake (pool)`."""
    body = code.body("wake", VOID, [POINTER])
    mutex, condition = (body.at(body.args[0], word) for word in (Pool.Mutex, Pool.Condition))
    body.call("pthread_mutex_lock", mutex)
    body.call("pthread_cond_broadcast", condition)
    body.call("pthread_mutex_unlock", mutex)
    body.builder.ret_void()


def _emit_parallel(code: WordCode, *, linux: bool) -> None:
    """Emit `parallel (frame, function, memory, workers) -> status`; the caller is worker 0, and waits for others."""
    body = code.body("parallel", POINTER, [POINTER, POINTER, POINTER, I64])
    builder, (frame, function, memory, workers) = body.builder, body.args
    pool = body.pointer(frame, PoolFrame.Pool)
    body.put(pool, Pool.Function, function)
    body.put(pool, Pool.Memory, memory)
    body.put(pool, Pool.Workers, workers)
    body.add(pool, Pool.Generation, i64(1), "seq_cst")
    sleepers = _latest(body, pool, Pool.Sleepers)
    with body.when(builder.icmp_signed(">", sleepers, i64(0))):
        cpu = builder.sext(body.call("sched_getcpu"), I64) if linux else i64(-1)
        body.swap(pool, Pool.WakerCpu, cpu)
        body.call("wake", pool)
        body.call("sched_yield")
    body.run_function(function, [memory, i64(0)])
    others = builder.sub(body.number(pool, Pool.Threads), i64(1))
    body.wait_until(lambda: builder.icmp_signed("==", body.current(pool, Pool.Finished), others))
    body.put(pool, Pool.Finished, i64(0))
    builder.ret(NULL)


def _emit_calls(code: WordCode) -> None:
    """Emit `prepare (frame)` and `place (frame, memory)`, then any number of `run (frame)` or `run_in_pool (frame)`."""
    body = code.body("prepare", VOID, [POINTER], exported=True)
    builder, (frame,) = body.builder, body.args
    status = body.call("evaluate", frame)
    body.put(frame, PoolFrame.Status, status)
    with body.when(builder.not_(body.is_null(status))):
        builder.ret_void()
    scratch = body.number(body.pointer(frame, Frame.Header), Header.ScratchBytes)
    areas = builder.mul(body.call("split", frame), scratch)
    body.put(frame, PoolFrame.Bytes, builder.add(body.call("lay_out", frame, NULL), areas))
    builder.ret_void()

    body = code.body("place", VOID, [POINTER, POINTER], exported=True)
    body.call("lay_out", *body.args)
    body.builder.ret_void()

    body = code.body("run", VOID, [POINTER], exported=True)
    body.call("run_steps", body.args[0], i64(1))
    body.builder.ret_void()

    body = code.body("run_in_pool", VOID, [POINTER], exported=True)
    builder, (frame,) = body.builder, body.args
    pool = body.pointer(frame, PoolFrame.Pool)
    with body.when(builder.not_(body.replace(pool, Pool.Use, i64(0), i64(Use.Call)))):
        body.call("run_steps", frame, i64(1))  # another call has the threads, or they end
        builder.ret_void()
    body.call("run_steps", frame, body.number(frame, Frame.Threads))
    before = body.add(pool, Pool.Use, i64(-Use.Call))
    with body.when(builder.icmp_signed("!=", before, i64(Use.Call)), likely=False):
        body.call("wake", pool)  # `stop` waits for this call
    builder.ret_void()


def _emit_move_away(code: WordCode, *, linux: bool) -> None:
    """Emit `move_away (pool)`: leave the CPU of the thread that has woken this one."""
    body = code.body("move_away", VOID, [POINTER])
    builder, (pool,) = body.builder, body.args
    if linux:
        mask, whole = body.words(MASK_BYTES // 8), [ir.Constant(I32, 0), i64(MASK_BYTES)]
        own = builder.sext(body.call("sched_getcpu"), I64)
        with body.when(builder.icmp_signed("==", own, body.current(pool, Pool.WakerCpu))):
            failed = body.call("sched_getaffinity", *whole, mask)
            with body.when(builder.icmp_signed("==", failed, ir.Constant(I32, 0))):
                word, bit = builder.lshr(own, i64(6)), builder.shl(i64(1), builder.and_(own, i64(63)))
                cpus = body.number(mask, word)
                # without this CPU the mask may be empty, which the system refuses
                for allowed in (builder.and_(cpus, builder.not_(bit)), cpus):
                    body.put(mask, word, allowed)
                    body.call("sched_setaffinity", *whole, mask)
    builder.ret_void()


def _emit_serve(code: WordCode) -> None:
    """Emit `serve (pool, number)`: do tasks until the pool is stopped."""
    body = code.body("serve", VOID, [POINTER, I64], exported=True)
    builder, (pool, number) = body.builder, body.args
    seen = body.words(1)
    body.put(seen, 0, i64(0))
    wait = builder.append_basic_block("wait")
    builder.branch(wait)
    builder.position_at_end(wait)
    last = body.number(seen)
    body.wait_until(lambda: builder.icmp_signed("!=", body.current(pool, Pool.Generation), last), WAITING.looks)
    with body.when(builder.icmp_signed("==", body.current(pool, Pool.Generation), last)):
        _emit_sleep(body, pool, last)
    body.put(seen, 0, body.current(pool, Pool.Generation))
    with body.when(builder.icmp_signed("!=", body.current(pool, Pool.Stopped), i64(0))):
        builder.ret_void()
    with body.when(builder.icmp_signed("<", number, body.number(pool, Pool.Workers)), likely=True):
        body.run_function(body.pointer(pool, Pool.Function), [body.pointer(pool, Pool.Memory), number])
    body.add(pool, Pool.Finished, i64(1))
    builder.branch(wait)


def _emit_sleep(body: Body, pool: ir.Value, last: ir.Value) -> None:
    """Emit a sleep until there is another generation than the last one."""
    builder, mutex = body.builder, body.at(pool, Pool.Mutex)
    body.call("pthread_mutex_lock", mutex)
    body.add(pool, Pool.Sleepers, i64(1), "seq_cst")
    _emit_doze(body, pool, lambda: builder.icmp_signed("!=", _latest(body, pool, Pool.Generation), last))
    body.add(pool, Pool.Sleepers, i64(-1), "seq_cst")
    body.call("pthread_mutex_unlock", mutex)
    body.call("move_away", pool)


def _emit_doze(body: Body, pool: ir.Value, is_over: Callable[[], ir.Value]) -> None:
    """Emit a sleep, with the mutex, until something holds when `wake` is called."""
    builder = body.builder
    look, doze, rise = (builder.append_basic_block(name) for name in ("look", "doze", "rise"))
    builder.branch(look)
    builder.position_at_end(look)
    builder.cbranch(is_over(), rise, doze)
    builder.position_at_end(doze)
    body.call("pthread_cond_wait", body.at(pool, Pool.Condition), body.at(pool, Pool.Mutex))
    builder.branch(look)
    builder.position_at_end(rise)


def _latest(body: Body, pool: ir.Value, word: Pool) -> ir.Value:
    return body.builder.load_atomic(body.at(pool, word), "seq_cst", 8, typ=I64)


def _emit_start_and_stop(code: WordCode) -> None:
    body = code.body("start", VOID, [POINTER, I64], exported=True)
    pool, threads = body.args
    body.put(pool, Pool.Threads, threads)
    body.call("pthread_mutex_init", body.at(pool, Pool.Mutex), NULL)
    body.call("pthread_cond_init", body.at(pool, Pool.Condition), NULL)
    body.builder.ret_void()

    body = code.body("stop", VOID, [POINTER], exported=True)
    (pool,) = body.args
    mutex = body.at(pool, Pool.Mutex)
    body.builder.atomic_rmw("or", body.at(pool, Pool.Use), i64(Use.Stop), "seq_cst")
    body.call("pthread_mutex_lock", mutex)
    # a worker that ended amid a call would be waited for forever
    _emit_doze(body, pool, lambda: body.builder.icmp_signed("==", _latest(body, pool, Pool.Use), i64(Use.Stop)))
    body.call("pthread_mutex_unlock", mutex)
    body.swap(pool, Pool.Stopped, i64(1))
    body.add(pool, Pool.Generation, i64(1), "seq_cst")
    body.call("wake", pool)
    body.builder.ret_void()
