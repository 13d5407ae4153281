"""Loops compiled by numba: once, kept in a folder of the cache, without the interpreter's lock.

numba is imported when the first of them is called: it takes 0.6 s of CPU, and most models need none.
"""

from collections.abc import Callable
from functools import cached_property, update_wrapper
from threading import Thread
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled_loop(*, fastmath: bool = False) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator that compiles a function without array allocations when it is first called.

    Numbers that one loop passes to another are 64 bits wide, so that each loop is compiled once.
    """

    def deferred(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        return _DeferredLoop(function, fastmath=fastmath)

    return deferred


def never() -> bool:
    """Whether it is late: what one asks who has all the time."""
    return False


def is_ready(
    loop: Callable[Parameters, object],
    is_late: Callable[[], bool],
    *arguments: Parameters.args,
    **by_name: Parameters.kwargs,
) -> bool:
    """Whether a loop is compiled for such arguments, if need be now; it is not called.

    Once it is late no compiling begins, and none is waited for. What has begun goes on in a process of its own, which
    ends with this one and takes none of its time; code that is ready by then is kept for the next process.
    Where it cannot be kept, a thread compiles it; that cannot be stopped, and other loops wait for it.

    Raises:
        TypeError: it is no compiled loop.
    """
    if not isinstance(loop, _DeferredLoop):
        raise TypeError(f"expected a compiled loop, got {loop!r}")
    given = (*arguments, *by_name.values())
    if loop.is_compiled_for(*given):
        return True
    if is_late is never:
        loop.compile_for(never, *given)
        return True
    if is_late():
        return False
    thread = Thread(target=loop.compile_for, args=(is_late, *given), daemon=True)
    thread.start()
    while thread.is_alive() and not is_late():
        thread.join(_PATIENCE)
    return loop.is_compiled_for(*given)


_PATIENCE = 0.05
"""Seconds between two questions for the time."""


class _DeferredLoop(Generic[Parameters, Result]):
    """A function that is compiled when it is first called."""

    def __init__(self, function: Callable[Parameters, Result], *, fastmath: bool) -> None:
        update_wrapper(self, function)
        self._function, self._fastmath = function, fastmath

    def __call__(self, *arguments: Parameters.args, **by_name: Parameters.kwargs) -> Result:
        return self.compiled(*arguments, **by_name)

    def compile_for(self, is_late: Callable[[], bool], *arguments: object) -> None:
        """Compile it for such arguments, in another process where it can be kept: then only unless it is late."""
        from .compiling_process import keep

        loop: Any = self.compiled
        kinds = tuple(loop.typeof_pyval(argument) for argument in arguments)
        if is_late is never or keep(self._function, loop, kinds, is_late):
            loop.compile(kinds)

    def is_compiled_for(self, *arguments: object) -> bool:
        """Whether that was done."""
        loop: Any = vars(self).get("compiled")
        return loop is not None and tuple(loop.typeof_pyval(argument) for argument in arguments) in loop.overloads

    @cached_property
    def compiled(self) -> Callable[Parameters, Result]:
        """The loop for Python to call."""
        return self._compiled(is_inner=False)

    @cached_property
    def inner(self) -> Callable[Parameters, Result]:
        """The loop for other loops to call: what Python would need to call it takes a third of the compiling."""
        return self._compiled(is_inner=True)

    def _compiled(self, *, is_inner: bool) -> Callable[Parameters, Result]:
        """Return the function with the loops it calls in their names' places, for numba to compile."""
        from .kept_loops import compiled

        function = self._function
        names: dict[str, Any] = function.__globals__
        called = {name: names[name].inner for name in function.__code__.co_names if _is_loop(names.get(name))}
        linked = FunctionType(
            function.__code__, names | called, function.__name__, function.__defaults__, function.__closure__
        )
        update_wrapper(linked, function)
        return compiled(linked, fastmath=self._fastmath, is_inner=is_inner)


def _is_loop(value: object) -> bool:
    return isinstance(value, _DeferredLoop)
