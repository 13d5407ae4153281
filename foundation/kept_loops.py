"""Loops compiled by numba and kept in a folder of the cache; numba is imported with this file.

Files of numba are code that a process runs, like networks in the cache: the folder is private.

Code contains the loops it calls and the constants and records it uses, from other files of its layer: it is compiled
again when any file of the layer has changed. Where no folder can be written to, loops are compiled in
each process that calls them: the first call says so.
"""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import njit
from numba.core import types
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    NullCache,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

from .cache_folder import LOOPS, default_folder
from .private_files import private_folder

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(function: Loop, *, fastmath: bool, is_inner: bool) -> Loop:
    """Return a function compiled without array allocations: numba then counts no references.

    Nothing in C calls it, and what is inner only other loops: wrappers for that would be compiled, too.
    """
    loop = njit(nogil=True, fastmath=fastmath, no_cfunc_wrapper=True, no_cpython_wrapper=is_inner, _nrt=False)(function)
    typed: Any = loop
    template: Callable[[list[types.Type], object], object] = typed.get_call_template

    def widest_template(kinds: Sequence[types.Type], by_name: object) -> object:
        return template([_widest(kind) for kind in kinds], by_name)

    typed.get_call_template = widest_template
    try:
        kept = _KeptLoops(function, is_inner=is_inner)
    except RuntimeError:  # no folder can be written to
        kept = _LostLoops()
    # what `cache=True` does, with our folders and words
    vars(loop)["_cache"] = kept
    return loop


def _widest(kind: types.Type) -> types.Type:
    """Return the type of a number of 64 bits for a signed number of fewer, and for one that the code spells out."""
    plain = types.unliteral(kind)
    return types.int64 if plain in types.signed_domain else plain


class _OwnFolder(UserWideCacheLocator):
    """A folder of the cache for the loops of a folder of sources; none where others can write to it."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        super().__init__(function, file)
        self._folder = default_folder() / LOOPS / Path(self.get_cache_path()).name

    def get_cache_path(self) -> str:
        """Return it; before it is known, numba's own."""
        return str(vars(self).get("_folder") or super().get_cache_path())

    def ensure_cache_path(self) -> None:
        """Make it where it is missing.

        Raises:
            OSError: it cannot be made or written to, or others can write to it.
        """
        for folder in (default_folder(), default_folder() / LOOPS, self._folder):
            private_folder(folder)
        super().ensure_cache_path()


class _Folders(CompileResultCacheImpl):
    _locator_classes = (UserProvidedCacheLocator, _OwnFolder)


class _KeptLoops(FunctionCache):
    """The code of a loop in a folder that could be written to when the loop was defined."""

    _impl_class = _Folders

    def __init__(self, function: Callable[..., Any], *, is_inner: bool) -> None:
        super().__init__(function)
        self._is_inner = is_inner
        # a kept list of another version is not read: it may name records that are no longer there
        index: object = vars(self)["_cache_file"]
        vars(index)["_version"] += _layer_digest(function)

    def _index_key(self, sig: object, codegen: object) -> tuple[object, ...]:
        """Code that Python cannot call is other code."""
        return *super()._index_key(sig, codegen), self._is_inner

    def has(self, loop: object, kinds: tuple[object, ...]) -> bool:
        """Whether code for arguments of such types is in the folder."""
        index: Any = vars(self)["_cache_file"]
        typed: Any = loop
        return self._index_key(kinds, typed.targetctx.codegen()) in index._load_index()

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


def can_be_kept(loop: object) -> bool:
    """Whether there is a folder to keep a loop in."""
    return isinstance(vars(loop)["_cache"], _KeptLoops)


def is_kept(loop: object, kinds: tuple[object, ...]) -> bool:
    """Whether the code of a loop for arguments of such types is in its folder."""
    cache = vars(loop)["_cache"]
    return isinstance(cache, _KeptLoops) and cache.has(loop, kinds)


def _layer_digest(function: Callable[..., Any]) -> str:
    """Digest of the files of the layer of `redpebble.LAYER....module`; of a module by itself numba knows the file."""
    depth = function.__module__.count(".")
    return _folder_digest(Path(function.__code__.co_filename).parents[depth - 2]) if depth > 1 else ""


@cache
def _folder_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _say() -> None:
    message = "compiling a search, which takes some seconds, in each process: there is no folder to keep it in"
    warnings.warn(message, stacklevel=2)
