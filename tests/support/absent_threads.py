"""A pool whose threads have not begun."""

import weakref

from typing_extensions import override

from redpebble.runtime.call_code import call_code
from redpebble.runtime.thread_pool import ThreadPool


class AbsentThreads(ThreadPool):
    """A pool of which the caller's thread is the only one that ever works."""

    @override
    def _start(self) -> None:
        self._state[...] = 0
        call_code().functions["start"](self.address, self.threads)
        self._finalizer = weakref.finalize(self, lambda: None)
