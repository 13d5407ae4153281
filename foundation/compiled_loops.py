"""Loops compiled by numba: once, kept beside the source or in the user's cache, without the interpreter's lock.

Where neither can be written to, loops are compiled in each process that calls them: the first call says so.
"""

import os
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    InTreeCacheLocator,
    NullCache,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled_loop(*, fastmath: bool = False) -> Callable[[Loop], Loop]:
    """Return what compiles a function that makes no arrays: numba then counts no references."""

    def compile_loop(function: Loop) -> Loop:
        loop = njit(nogil=True, fastmath=fastmath, _nrt=False)(function)
        try:
            kept = _KeptLoops(function)
        except RuntimeError:  # no folder can be written to
            kept = _LostLoops()
        # what `cache=True` does, with our folders and words
        vars(loop)["_cache"] = kept
        return loop

    return compile_loop


class _OwnFolder(UserWideCacheLocator):
    """The user's cache; a user without a home has none, rather than a folder `~` here."""

    def ensure_cache_path(self) -> None:
        if not os.path.isabs(self.get_cache_path()):
            raise FileNotFoundError(self.get_cache_path())
        super().ensure_cache_path()


class _Folders(CompileResultCacheImpl):
    _locator_classes = (UserProvidedCacheLocator, InTreeCacheLocator, _OwnFolder)


class _KeptLoops(FunctionCache):
    """The code of a loop in a folder that could be written to when the loop was defined."""

    _impl_class = _Folders

    def save_overload(self, sig: object, data: object) -> None:
        try:
            super().save_overload(sig, data)
        except OSError:  # it was made, and is used
            _say()


class _LostLoops(NullCache):
    """The place of code that cannot be kept."""

    def load_overload(self, *_: object) -> None:
        """Say that code is made, before it is; there is none to be loaded."""
        _say()


@cache
def _say() -> None:
    message = "compiling a search, which takes some seconds, in each process: there is no folder to keep it in"
    warnings.warn(message, stacklevel=2)
