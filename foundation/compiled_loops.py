"""Loops compiled by numba: once, kept in a folder of the cache, without the interpreter's lock.

numba is imported when the first of them is called: it takes 0.6 s of CPU, and most models need none.
"""

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled_loop(*, fastmath: bool = False) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator that compiles a function without array allocations when it is first called."""

    def deferred(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        return _DeferredLoop(function, fastmath=fastmath)

    return deferred


class _DeferredLoop(Generic[Parameters, Result]):
    """A function that is compiled when it is first called."""

    def __init__(self, function: Callable[Parameters, Result], *, fastmath: bool) -> None:
        update_wrapper(self, function)
        self._function, self._fastmath = function, fastmath

    def __call__(self, *arguments: Parameters.args, **by_name: Parameters.kwargs) -> Result:
        return self.compiled(*arguments, **by_name)

    @cached_property
    def compiled(self) -> Callable[Parameters, Result]:
        """The loop as numba compiles it; loops that it calls are compiled, too, and take their names there."""
        from .kept_loops import compiled

        names = self._function.__globals__
        for name in self._function.__code__.co_names:
            called: Any = names.get(name)
            if isinstance(called, _DeferredLoop):
                names[name] = called.compiled
        return compiled(self._function, fastmath=self._fastmath)
