"""A thing that a process has one of, though several threads may ask for it first."""

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import TypeVar

Made = TypeVar("Made")


def made_once(make: Callable[[], Made]) -> Callable[[], Made]:
    """Return a function that makes a thing in its first call, and returns that one ever after.

    `functools.cache` lets threads whose first calls come at once make one each, and forgets all but the last, which
    unloads code that is running.
    """
    lock, made = RLock(), list[Made]()

    @wraps(make)
    def get() -> Made:
        if not made:
            with lock:
                if not made:
                    made.append(make())
        return made[0]

    return get
