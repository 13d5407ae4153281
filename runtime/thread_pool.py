"""A pool of threads for one network: Python's threads, which stay in native code until the pool is closed."""

import platform
import threading
import weakref
from functools import cache

import numpy as np
from numpy.typing import NDArray

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.threads.thread_pool import POOL_BYTES, pool_module
from redpebble.runtime.jit import MachineCode, emit_object, load_object
from redpebble.runtime.memory import address_of, aligned_bytes


@cache
def _pool_code() -> MachineCode:
    """Return the pool's functions; there is one copy in a process."""
    x86 = platform.machine().lower() in {"x86_64", "amd64", "i386", "i686"}
    image = emit_object(pool_module(x86=x86, linux=platform.system() == "Linux"), CpuTarget.generic())
    return load_object(image, {"prepare": (1, 1), "run": (2, 0), "stop": (1, 0), "work": (1, 1)})


class ThreadPool:
    """`threads` - 1 workers beside the thread that calls `run`; they end when the pool is collected."""

    def __init__(self, threads: int) -> None:
        """Start the workers."""
        self.threads = threads
        self._code = _pool_code()
        self._state = aligned_bytes(POOL_BYTES)
        self._state[...] = 0
        self._busy = threading.Lock()
        self._address = address = address_of(self._state)
        self._code.functions["prepare"](address, threads)
        work = self._code.functions["work"]
        workers = [threading.Thread(target=work, args=(address, number), daemon=True) for number in range(1, threads)]
        for worker in workers:
            worker.start()
        weakref.finalize(self, _close, self._code, self._state, workers)

    def try_run(self, call: int) -> bool:
        """Run the call at an address (see `lowering/thread_pool.py`), or return False when another one is running."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            self._code.functions["run"](self._address, call)
        finally:
            self._busy.release()
        return True


def _close(code: MachineCode, state: NDArray[np.uint8], workers: list[threading.Thread]) -> None:
    """End the workers; code and state must outlive them."""
    code.functions["stop"](address_of(state))
    for worker in workers:
        worker.join()
