"""Our provider first in sessions that name no other, in whatever library they are made."""

import inspect
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from types import FrameType
from typing import Any, Final, NoReturn

import onnxruntime

from ..native.ep_library import EP_NAME
from ..session_arguments import Providers
from .register import BY_NAME, minor_version, register

_NOT_CHOSEN: Final = frozenset({"AzureExecutionProvider", "CPUExecutionProvider", EP_NAME})
"""Providers that a library names because they are there; all others somebody has chosen."""

_USAGE: Final = "python -m redpebble.onnxruntime SCRIPT.py ARGUMENTS ..., or -m MODULE ARGUMENTS ..."


def prefer(rows: int = 0) -> None:
    """Let sessions that are made from now on put our provider first, where they name none but the CPU's.

    Sessions that name another one (CUDA, OpenVINO, ...), and those whose options have devices, stay as they are. `rows`
    is that of `redpebble.register`.

    Raises:
        ValueError: onnxruntime is older than 1.26, or `register` refuses.
    """
    if minor_version(onnxruntime.__version__) < BY_NAME:
        raise ValueError(
            f"onnxruntime: expected 1.{BY_NAME} or newer, which takes providers by name, got {onnxruntime.__version__}"
        )
    register(rows)
    make = onnxruntime.InferenceSession.__init__
    if not hasattr(make, "__wrapped__"):
        onnxruntime.InferenceSession.__init__ = _preferring(make)


def _preferring(make: Callable[..., None]) -> Callable[..., None]:
    @wraps(make)
    def made(
        self: object,
        path_or_bytes: object,
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **others: object,
    ) -> None:
        devices = sess_options is not None and sess_options.has_providers()
        # what the compiler itself runs, and compares with, is onnxruntime as it is
        if not devices and not _by_redpebble(inspect.currentframe()):
            providers, provider_options = with_ours(providers, provider_options)
        make(self, path_or_bytes, sess_options, providers, provider_options, **others)

    return made


def _by_redpebble(frame: FrameType | None) -> bool:
    caller = frame.f_back if frame is not None else None
    return caller is not None and str(caller.f_globals.get("__name__")).startswith("redpebble.")


def with_ours(
    providers: Providers | None, options: Sequence[dict[Any, Any]] | None
) -> tuple[Providers | None, Sequence[dict[Any, Any]] | None]:
    """Return providers, and their options, with ours first; unchanged where another one was chosen."""
    given = providers or ["CPUExecutionProvider"]
    names = [one if isinstance(one, str) else one[0] for one in given]
    if not _NOT_CHOSEN.issuperset(names):
        return providers, options
    order = sorted(range(len(names)), key=lambda index: names[index] != EP_NAME)
    added = EP_NAME not in names
    first: list[str | tuple[str, dict[Any, Any]]] = [EP_NAME] if added else []
    ordered = [*first, *(given[index] for index in order)]
    if not options or len(options) != len(names):  # onnxruntime says what is wrong with these
        return ordered, options
    nothing: list[dict[Any, Any]] = [{}] if added else []
    return ordered, [*nothing, *(options[index] for index in order)]


def run(words: Sequence[str]) -> None:
    """Run a script or a module, as Python would, with `prefer`."""
    as_module = words[:1] == ["-m"]
    rest = words[1:] if as_module else words
    if not rest or rest[0].startswith("-"):
        _refuse(f"expected {_USAGE}")
    if not as_module and not os.path.exists(rest[0]):
        _refuse(f"script {rest[0]!r}: expected a file, got none of that name")
    try:
        prefer()
    except ValueError as error:
        _refuse(str(error))
    sys.argv[:] = rest
    if as_module:
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
        runpy.run_path(rest[0], run_name="__main__")


def _refuse(message: str) -> NoReturn:
    print(f"redpebble.onnxruntime: {message}", file=sys.stderr)
    raise SystemExit(2)
