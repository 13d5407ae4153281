"""Runs the RUN lines of a filecheck file in this process, where lit would start some programs for each line."""

import contextlib
import io
import shlex
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import filecheck.main
from xdsl.xdsl_opt_main import xDSLOptMain

PROGRAMS: dict[str, Callable[[list[str]], object]] = {
    "xdsl-opt": lambda words: xDSLOptMain(args=words[1:]).run(),
    "filecheck": filecheck.main.main,
}


def failures(file: Path) -> list[str]:
    """Return for each RUN line that ends in failure the line and what was printed, where nothing was piped on."""
    lines = [line.partition("RUN:")[2].strip() for line in file.read_text().splitlines() if "// RUN:" in line]
    assert lines, f"{file} has no RUN line"
    printed = [_failure(line, file) for line in lines]
    return [f"{line}\n{text}" for line, text in zip(lines, printed, strict=True) if text is not None]


def _failure(line: str, file: Path) -> str | None:
    words, piped, log = shlex.split(line.replace("%s", shlex.quote(str(file)))), "", ""
    while words:
        end = words.index("|") if "|" in words else len(words)
        stage, words = words[:end], words[end + 1 :]
        fails, joined = stage[0] == "not", stage[-1] == "2>&1"
        code, piped, said = _run(stage[fails : end - joined], piped, joined=joined)
        log += said
        if bool(code) != fails:
            return f"{' '.join(stage)} ended with {code}\n{log}{piped}"
    return None


def _run(words: list[str], piped: str, *, joined: bool) -> tuple[int, str, str]:
    """Return exit code, output and errors of a program; `joined` errors are part of the output."""
    given, output = io.TextIOWrapper(io.BytesIO(piped.encode()), encoding="utf-8"), io.StringIO()
    errors, before, code = output if joined else io.StringIO(), sys.stdin, 0
    sys.stdin = given
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                PROGRAMS[words[0]](words)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except Exception:  # as the interpreter does it at the end of a program
                traceback.print_exc()
                code = 1
    finally:
        sys.stdin = before
    return code, output.getvalue(), "" if joined else errors.getvalue()
