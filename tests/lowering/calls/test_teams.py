"""Threads of a team that come in any order."""

import ctypes
import threading
import time
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from redpebble.lowering.architectures import Architecture
from redpebble.lowering.calls.pool import WAITING
from redpebble.lowering.calls.steps import Host, Member, emit_relax, emit_steps, emit_team
from redpebble.lowering.calls.table import Frame, Header, Split, Step
from redpebble.lowering.calls.words import WordCode, Words
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.llvm.values import I32, POINTER, Number, i64
from redpebble.runtime.jit import emit_object, load_object
from redpebble.runtime.memory import address_of

THREADS = 2
ITEMS = 6
"""Rows of the step, and items of each of its phases."""
AREA = 8 * ITEMS
"""Bytes of an area of scratch memory."""

ADDRESS = ctypes.c_void_p
NUMBER = ctypes.c_int64
JOIN = ctypes.CFUNCTYPE(None, ADDRESS, NUMBER)
CLAIM = ctypes.CFUNCTYPE(NUMBER, ADDRESS, NUMBER)
PARALLEL = ctypes.CFUNCTYPE(None, ADDRESS, ADDRESS)
SHARED = ctypes.CFUNCTYPE(None, *(4 * [ADDRESS]), *(2 * [NUMBER]), *(3 * [ADDRESS]))

Array = NDArray[np.int64]
Phases = Callable[[Array, Array, int, int], None]
"""(scratch memory of all, that of the thread, address of `claim`, address of the `Member`)"""


def words_at(address: int, count: int) -> Array:
    return np.ctypeslib.as_array((NUMBER * count).from_address(address))


def table(words: Mapping[int, int], count: int) -> Array:
    memory = np.zeros(count, np.int64)
    for index, word in words.items():
        memory[index] = word
    return memory


def pointer(callback: object) -> int:
    return ctypes.cast(callback, ctypes.c_void_p).value or 0  # pyright: ignore[reportArgumentType]


def run(parallel: Callable[[int, int], None], phases: Phases) -> None:
    """Run a step whose threads a function of this test starts, and whose phases another one does."""
    code = WordCode(ir.Module("teams"))
    for name, count in (("sched_yield", 0), ("nanosleep", 2)):
        code.declare(name, I32, [POINTER] * count)
    architecture, start = Architecture("none"), PARALLEL(parallel)
    never = np.zeros(1, np.int64)

    def constant(number: int) -> Words:
        return Words(code.builder, i64(number).inttoptr(POINTER))

    host = Host(architecture, WAITING, waits_itself=True, alone_until=lambda _: constant(address_of(never)))
    emit_relax(code, WAITING, architecture)
    emit_team(code, host)

    @code.function("report")
    def _(_frame: Frame, _problem: Number, _left: Number, _right: Number) -> Words:
        return code.null

    @code.function("parallel")
    def _(_frame: Frame, function: Words, memory: Words, _workers: Number) -> Words:
        constant(pointer(start)).call(function, memory)
        return code.null

    emit_steps(code, host)

    @code.function("run", exported=True)
    def _(frame: Frame) -> None:
        code.address("run_steps", frame, frame.threads)

    def shared(*arguments: int) -> None:
        _, _, _, scratch, _, _, own, claim, member = arguments
        phases(words_at(scratch, ITEMS), words_at(own, ITEMS), claim, member)

    work = SHARED(shared)
    step = table({Step.shared: pointer(work)}, Step.word_count)
    split = table({Split.rows: ITEMS, Split.workers: THREADS, Split.unit_rows: 1}, Split.word_count)
    header = table({Header.steps: 1, Header.step_table: address_of(step)}, Header.word_count)
    scratch = np.zeros((1 + THREADS) * AREA // 8, np.int64)
    words = {Frame.header: address_of(header), Frame.splits: address_of(split), Frame.scratch: address_of(scratch)}
    frame = table({**words, Frame.scratch_bytes: AREA, Frame.threads: THREADS}, Frame.word_count)
    loaded = load_object(emit_object(str(code.module), CpuTarget.generic()), {"run": (1, 0)})
    loaded.functions["run"](address_of(frame))


def claimed_items(claim: int, member: int, *, meets: bool = True) -> range:
    """What a thread gets of a phase, behind which threads meet or do not."""
    words = words_at(member, Member.word_count)
    words[Member.meets] = meets
    first: int = CLAIM(claim)(member, ITEMS)
    return range(first, first + int(words[Member.held]))


@pytest.mark.parametrize("late", range(THREADS))
def test_a_thread_that_comes_amid_the_phases_spoils_nothing(late: int) -> None:
    """A thread makes what all need, and copies for itself what it reads of it, as kernels do; another comes late."""
    early = 1 - late
    may_come, has_come = threading.Event(), threading.Event()
    results, copies, numbers = list[int](), list[int](), dict[int, int]()

    def parallel(function: int, memory: int) -> None:
        def join(number: int) -> None:
            numbers[threading.get_ident()] = number
            JOIN(function)(memory, number)

        def come() -> None:
            may_come.wait(60)
            join(late)

        thread = threading.Thread(target=come)
        thread.start()
        join(early)
        thread.join()

    def phases(everybodys: Array, own: Array, claim: int, member: int) -> None:
        while claimed := claimed_items(claim, member):
            for item in claimed:
                everybodys[item] = item + 1
        is_late = numbers[threading.get_ident()] == late
        own[:] = -1 if is_late else everybodys
        if is_late:
            has_come.set()
        else:
            may_come.set()
            has_come.wait(60)
            copies.extend(own)
        while claimed := claimed_items(claim, member):
            results.extend(everybodys[claimed.start : claimed.stop])

    run(parallel, phases)
    assert has_come.is_set()
    assert copies == sorted(results) == list(range(1, ITEMS + 1))


@pytest.mark.parametrize("first", range(THREADS))
def test_a_thread_begins_with_its_share_and_then_does_what_others_have_not_begun(first: int) -> None:
    done = list[int]()

    def parallel(function: int, memory: int) -> None:
        for number in (first, 1 - first):
            JOIN(function)(memory, number)

    def phases(_everybodys: Array, _own: Array, claim: int, member: int) -> None:
        while claimed := claimed_items(claim, member):
            done.extend(claimed)

    run(parallel, phases)
    shares = [*range(ITEMS // 2)], [*range(ITEMS // 2, ITEMS)]
    assert done == [*shares[first], *shares[1 - first]]


def test_a_phase_begins_when_the_one_before_is_done_though_threads_did_not_meet_behind_it() -> None:
    """One thread stays in an item of the first phase; the other goes on, and gets none of the second one until then."""
    has_claimed, has_gone_on = threading.Event(), threading.Event()
    seen, results = list[int](), list[int]()

    def parallel(function: int, memory: int) -> None:
        slow = threading.Thread(target=lambda: JOIN(function)(memory, 1))
        slow.start()
        has_claimed.wait(60)
        JOIN(function)(memory, 0)
        slow.join()

    def phases(everybodys: Array, _own: Array, claim: int, member: int) -> None:
        is_slow = int(words_at(member, Member.word_count)[Member.place]) == 1
        while claimed := claimed_items(claim, member, meets=False):
            if is_slow and not has_claimed.is_set():
                has_claimed.set()
                has_gone_on.wait(60)
                time.sleep(0.1)
            for item in claimed:
                everybodys[item] = item + 1
        if not is_slow:
            seen.extend(everybodys)
            has_gone_on.set()
        while claimed := claimed_items(claim, member, meets=False):
            results.extend(everybodys)

    run(parallel, phases)
    assert 0 in seen
    assert results
    assert set(results) == set(range(1, ITEMS + 1))
