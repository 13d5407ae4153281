"""The command line in the test's own process, and the commands that read a model."""

import sys

import pytest

from redpebble.tools.console.console import console, progress_console
from redpebble.tools.main import main

MODEL_COMMANDS = {
    "optimize": ("o.onnx",),
    "compile": ("-o", "o.pebble"),
    "check": (),
    "bench": (),
    "tune": (),
    "explain": (),
    "schedule": ("--memory", "9", "--save", "o.npz"),
    "partition": ("-p", "2", "-o", "parts"),
    "simulate": (),
}
"""Commands that read a model, and what each needs or writes beside it."""


def exit_code(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Run `redpebble WORDS...`; what it prints is for `capsys` or `capfd` to read."""
    for one in (console, progress_console):
        monkeypatch.setattr(one, "quiet", False)  # which a command of another test may have changed, or this one will
    monkeypatch.setattr(sys, "argv", ["redpebble", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)
