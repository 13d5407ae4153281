"""The collection of garbage while a model is built: IR is many objects that live until the end."""

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

THRESHOLDS: Final = (50_000, 20, 20)
"""Objects, and collections of younger ones, after which Python looks for garbage: as usual it takes 1/8 of a build."""


class _Rarely:
    """Number of builds that run, and the thresholds to go back to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.builds = 0
        self.usual = gc.get_threshold()

    def enter(self) -> None:
        """Begin a build; the first one changes the thresholds."""
        with self.lock:
            if self.builds == 0:
                self.usual = gc.get_threshold()
                # 0 is the user's word that nothing is to be collected
                if self.usual[0] and self.usual[0] < THRESHOLDS[0]:
                    gc.set_threshold(*THRESHOLDS)
            self.builds += 1

    def leave(self) -> None:
        """End a build; the last one restores the thresholds."""
        with self.lock:
            self.builds -= 1
            if self.builds == 0:
                gc.set_threshold(*self.usual)


_RARELY: Final = _Rarely()


@contextmanager
def rare_collections() -> Generator[None]:
    """Let Python look for garbage less often, in all threads, until the last build that asks for it is done."""
    _RARELY.enter()
    try:
        yield
    finally:
        _RARELY.leave()
