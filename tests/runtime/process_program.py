"""Processes that fork, and that end, while networks with threads are in use: a program, since it may hang.

`python -m tests.runtime.process_program SCENARIO...`; it ends with 0 where all went well.
"""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

import redpebble
from redpebble.models.zoo import build
from redpebble.runtime.network import Network

THREADS = 3
Floats = NDArray[np.float32]


def a_network() -> Network:
    return redpebble.compile(build("ffnn(depth=2,width=256,density=0.2)"), threads=THREADS)


def an_input(rows: int = 2000) -> Floats:
    return np.random.default_rng(0).standard_normal((rows, 256), dtype=np.float32)


def run(network: Network, x: Floats) -> Floats:
    (output,) = network.run(None, {network.get_inputs()[0].name: x})
    return output


def child_of_fork(body: Callable[[], bool]) -> None:
    """A forked child for which `body` is true."""
    process = os.fork()
    if process == 0:
        os._exit(0 if body() else 1)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status


def forks(rows: int, *, by_interpreter: bool) -> None:
    """Children, and theirs, run calls and bound calls on threads of their own, also amid a call of the parent."""
    network, x = a_network(), an_input(rows)
    expected = run(network, x)
    direct = network._direct  # pyright: ignore[reportPrivateUsage]
    assert by_interpreter == (direct is not None)
    assert direct is None or direct.call.is_parallel
    bound = network.bind({network.get_inputs()[0].name: x.copy()})

    def is_right() -> bool:
        before = threading.active_count()
        results = [run(network, x), bound.run()[0], run(network, x), run(network, x)]
        same = all(np.array_equal(result, expected) for result in results)
        is_direct = direct is None or direct.run({network.get_inputs()[0].name: x}) is not None
        return same and is_direct and threading.active_count() == before + THREADS - 1

    child_of_fork(is_right)

    def is_right_below() -> bool:
        child_of_fork(is_right)
        return is_right()

    child_of_fork(is_right_below)
    stop = threading.Event()

    def calls() -> None:
        while not stop.is_set():
            run(network, x)

    callers = [threading.Thread(target=calls) for _ in range(2)]
    for caller in callers:
        caller.start()
    for _ in range(5):
        child_of_fork(is_right)
    stop.set()
    for caller in callers:
        caller.join()
    assert np.array_equal(run(network, x), expected)


NETWORKS: list[Network] = []


def in_child(x: Floats) -> Floats:
    """What a worker of a pool makes of an input; one that was spawned has to compile first."""
    if not NETWORKS:
        NETWORKS.append(a_network())
    return run(NETWORKS[0], x)


def pool_of(method: str) -> None:
    NETWORKS.append(a_network())
    x = an_input()
    expected = run(NETWORKS[0], x)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert all(np.array_equal(found, expected) for found in pool.map(in_child, [x] * 4))


def loaded_ends(count: int) -> None:
    """Interpreters end while a thread makes one call after the other, and other processes want all CPUs."""
    program = os.getpid()
    for _ in range(os.cpu_count() or 1):
        if os.fork() == 0:
            while os.getppid() == program:
                pass
            os._exit(0)
    ends(count, callers=1)


def ends(count: int, callers: int = 3) -> None:
    """Interpreters end while threads are in calls."""
    network, x = a_network(), an_input()
    for _ in range(count):
        process = os.fork()
        if process == 0:
            break
        _, status = os.waitpid(process, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status

    def calls() -> None:
        while True:
            run(network, x)

    for _ in range(callers):
        threading.Thread(target=calls, daemon=True).start()
    time.sleep(0.05)


SCENARIOS: Mapping[str, Callable[[], None]] = {
    "forks": lambda: forks(2000, by_interpreter=False),
    "forks of short calls": lambda: forks(60, by_interpreter=True),
    "fork": lambda: pool_of("fork"),
    "spawn": lambda: pool_of("spawn"),
    "few ends": lambda: ends(4),
    "many ends": lambda: ends(60),
    "loaded ends": lambda: loaded_ends(10),
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        SCENARIOS[name]()
