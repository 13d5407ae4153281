"""A pool of threads for one network: Python's threads, which stay in native code until the pool is closed."""

import threading
import weakref

import numpy as np
from numpy.typing import NDArray

from redpebble.lowering.calls.pool import POOL_BYTES
from redpebble.runtime.call_code import call_code
from redpebble.runtime.jit import MachineCode
from redpebble.runtime.memory import address_of, aligned_bytes


class ThreadPool:
    """`threads` - 1 workers beside the thread that makes a call; they end when the pool is collected."""

    def __init__(self, threads: int) -> None:
        """Start the workers."""
        self.threads = threads
        code, self._state = call_code(), aligned_bytes(POOL_BYTES)
        self._state[...] = 0
        self.address = address_of(self._state)
        code.functions["start"](self.address, threads)
        serve = code.functions["serve"]
        workers = [
            threading.Thread(target=serve, args=(self.address, number), daemon=True) for number in range(1, threads)
        ]
        for worker in workers:
            worker.start()
        weakref.finalize(self, _close, code, self._state, workers)


def _close(code: MachineCode, state: NDArray[np.uint8], workers: list[threading.Thread]) -> None:
    """End the workers; code and state must outlive them."""
    code.functions["stop"](address_of(state))
    for worker in workers:
        worker.join()
