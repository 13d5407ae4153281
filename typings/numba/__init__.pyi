from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

def njit(
    *,
    cache: bool = ...,
    nogil: bool = ...,
    fastmath: bool = ...,
    no_cfunc_wrapper: bool = ...,
    no_cpython_wrapper: bool = ...,
    _nrt: bool = ...,
) -> Callable[[_F], _F]: ...
