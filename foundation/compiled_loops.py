"""How numba compiles loops: once, kept beside the source or in the user's cache, without the interpreter's lock.

Where neither can be written to, loops are compiled in each process that calls them, which is said once.
"""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled_loop(*, fastmath: bool = False) -> Callable[[Loop], Loop]:
    """Return what compiles a function that makes no arrays: numba then counts no references."""

    def compile_loop(function: Loop) -> Loop:
        try:
            return njit(cache=True, nogil=True, fastmath=fastmath, _nrt=False)(function)
        except RuntimeError:  # no folder can be written to
            warnings.warn("compiled searches cannot be kept: each process compiles them again", stacklevel=2)
            return njit(nogil=True, fastmath=fastmath, _nrt=False)(function)

    return compile_loop
