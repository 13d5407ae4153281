"""Which calls get the threads of a pool, and how its end comes."""

import ctypes
import threading
import time
from collections.abc import Callable

import numpy as np

from redpebble.dialect.reports.layer_report import Report
from redpebble.dialect.symbolic_sizes import Size
from redpebble.lowering.calls.network_table import IN_PROCESS, network_table, symbols_of
from redpebble.lowering.calls.pool import Pool, Use
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.program import Program, Step, Tensor, TiledRows, TileTime
from redpebble.runtime.call import Call, new_call
from redpebble.runtime.call_code import call_code
from redpebble.runtime.jit import MachineCode
from redpebble.runtime.loaded_network import LoadedNetwork
from redpebble.runtime.memory import address_of
from redpebble.runtime.thread_pool import ThreadPool
from tests.support.absent_threads import AbsentThreads

ROWS, TILE, PIECES = 512, 64, 6
DEADLINE = 60.0
"""Seconds after which a thread that should have moved on is taken to hang."""

StepFunction = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int64)


class WatchedCall:
    """A call of one step, whose rows a function of this test does."""

    def __init__(self, pool: ThreadPool) -> None:
        self.work: Callable[[], object] = lambda: None
        """What is done for each piece of the rows."""
        self.doers: list[int] = []
        """The thread that did each piece."""
        self._alone_until = word_of(pool, Pool.alone_until)
        self._pieces: list[tuple[int, int]] = []
        self._function = StepFunction(self._step)
        self._call = self._new_call(pool)

    def _step(self, *arguments: int) -> None:
        *_, begin, end = arguments
        self._pieces.append((begin, end))
        self.doers.append(threading.get_ident())
        self.work()

    def _new_call(self, pool: ThreadPool) -> Call:
        rows = Size.symbol("rows")
        step = Step("step0", rows, TiledRows((TileTime(TILE, 1, 1e5, None),), TILE, None))
        inputs = (Tensor("x", (rows,)),)
        program = Program("", CpuTarget.generic(), inputs, (), (), (), (), (), 0, (step,), Report(()))
        symbols = symbols_of(program, "")
        words = network_table(program, symbols, IN_PROCESS)
        table = np.zeros(len(words.words), dtype=np.int64)
        function = ctypes.cast(self._function, ctypes.c_void_p).value
        assert function is not None
        words.write_to(table, {"step0": function, symbols.table: address_of(table)})
        return new_call(LoadedNetwork(program, table, MachineCode({}, {}, ())), {"rows": ROWS}, pool)

    def run(self, *, after_loss: bool = False) -> int:
        """Return in how many pieces the rows were done: in one where the call had no threads.

        What other programs have cost before is forgotten, but for a call `after_loss`.
        """
        self._pieces.clear()
        self.doers.clear()
        if not after_loss:
            self._alone_until[0] = 0
        self._call.native.run()
        assert sorted(row for begin, end in self._pieces for row in range(begin, end)) == [*range(ROWS)]
        return len(self._pieces)


def word_of(pool: ThreadPool, number: int) -> "ctypes.Array[ctypes.c_int64]":
    return (ctypes.c_int64 * 1).from_address(pool.address + 8 * number)


def use_of(pool: ThreadPool) -> int:
    return int(word_of(pool, Pool.use)[0])


def stopping(pool: ThreadPool) -> threading.Thread:
    """A thread that stops a pool."""
    return threading.Thread(target=call_code().functions["stop"], args=(pool.address,), daemon=True)


def is_over(thread: threading.Thread) -> bool:
    thread.join(DEADLINE)
    return not thread.is_alive()


def test_a_call_takes_the_threads_and_gives_them_back() -> None:
    pool = ThreadPool(2)
    call, uses = WatchedCall(pool), set[int]()
    call.work = lambda: uses.add(use_of(pool))
    assert [call.run() for _ in range(3)] == [PIECES] * 3
    assert uses == {Use.Call}
    assert use_of(pool) == 0


def test_a_call_amid_another_one_has_no_threads() -> None:
    pool = ThreadPool(2)
    outer, pieces = WatchedCall(pool), list[int]()
    outer.work = lambda: pieces.append(WatchedCall(pool).run())
    assert outer.run() == PIECES
    assert pieces == [1] * PIECES


def test_a_pool_that_is_told_to_stop_waits_for_one_call_and_gives_its_threads_to_no_other_one() -> None:
    pool = ThreadPool(2)
    call, stop, begun = WatchedCall(pool), stopping(pool), threading.Event()

    def tell() -> None:
        if not begun.is_set():
            begun.set()
            stop.start()
        end = time.monotonic() + DEADLINE
        while use_of(pool) == Use.Call and time.monotonic() < end:
            time.sleep(0.001)

    call.work = tell
    assert call.run() == PIECES
    # the thread that stops the pool need not have seen the end of the call, and cannot be overtaken
    call.work = lambda: None
    assert [call.run() for _ in range(20)] == [1] * 20
    assert is_over(stop)
    assert use_of(pool) == Use.Stop


def test_a_pool_without_a_call_stops_at_once_and_again() -> None:
    pool = ThreadPool(3)
    assert all(is_over(thread) for thread in (started(stopping(pool)), started(stopping(pool))))
    assert WatchedCall(pool).run() == 1


def started(thread: threading.Thread) -> threading.Thread:
    thread.start()
    return thread


def test_nobody_waits_for_a_thread_that_has_not_begun() -> None:
    call = WatchedCall(AbsentThreads(2))
    assert [call.run() for _ in range(3)] == [PIECES] * 3


class HeldThread:
    """The work of a call in which a thread of the pool stays in its first piece until the caller has done the rest."""

    def __init__(self, call: WatchedCall) -> None:
        self.call, self.caller = call, threading.get_ident()
        self.has_begun = threading.Event()
        call.work = self._work

    def _work(self) -> None:
        if threading.get_ident() == self.caller:
            assert self.has_begun.wait(DEADLINE)
            return
        self.has_begun.set()
        end = time.monotonic() + DEADLINE
        while len(self.call.doers) < PIECES and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.5)


def test_a_thread_that_is_held_up_costs_what_it_has_begun_and_then_the_caller_works_alone() -> None:
    call = WatchedCall(ThreadPool(2))
    held = HeldThread(call)
    assert call.run() == PIECES
    assert call.doers.count(held.caller) == PIECES - 1
    # it was waited for half a second: the steps of the next seconds are not shared
    assert call.run(after_loss=True) == 1
    assert call.run() == PIECES
