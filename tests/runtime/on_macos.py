"""The main flow where Python says that the system is macOS, `/proc` and `/sys` are not there, and no ELF library loads.

Code that LLVM makes is still that of this machine: what no test here can see is code in the format of macOS.
"""

import builtins
import ctypes
import io
import logging
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
import onnx
import onnxruntime
import typer.testing
from llvmlite import binding

HIDDEN = ("/proc", "/sys")
ELF = b"\x7fELF"
LINUX_ALONE = ("sched_getaffinity", "sched_setaffinity", "memfd_create", "pidfd_open")

P = ParamSpec("P")
R = TypeVar("R")


def hiding(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function on a path that finds no file of Linux."""

    def found(*arguments: P.args, **named: P.kwargs) -> R:
        path = arguments[0] if arguments else None
        if isinstance(path, str | Path) and str(path).startswith(HIDDEN):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(*arguments, **named)

    return found


class Loaded(ctypes.CDLL):
    """A library that is none of ELF."""

    def __init__(self, name: str | None, mode: int = ctypes.DEFAULT_MODE) -> None:
        if name is not None and Path(name).read_bytes()[:4] == ELF:
            raise OSError(f"dlopen({name}): not a mach-o file")
        super().__init__(name, mode)


def pretend() -> None:
    """Take away what macOS lacks."""
    sys.platform = "darwin"
    platform.system = lambda: "Darwin"
    for name in LINUX_ALONE:
        if hasattr(os, name):
            delattr(os, name)
    builtins.open = io.open = hiding(open)
    for name in ("open", "stat", "readlink", "listdir", "scandir"):
        setattr(os, name, hiding(getattr(os, name)))
    ctypes.CDLL = Loaded


def main(folder: Path) -> None:
    """Run a model in all ways; results are those of onnxruntime."""
    import redpebble
    from redpebble.foundation.memory_limit import available_memory
    from redpebble.models import zoo
    from redpebble.tools.main import app

    binding.initialize_native_target()
    file, output = folder / "model.onnx", folder / "out.onnx"
    zoo.save(zoo.build("ffnn(depth=3, width=128, density=0.1)"), file)
    model = onnx.ModelProto.FromString(file.read_bytes())
    x = np.random.default_rng(0).random((37, 128), dtype=np.float32)
    feeds = {model.graph.input[0].name: x}
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    optimized = redpebble.optimize(model)
    for name, runner in {
        "compile": redpebble.compile(model, cache=folder / "cache"),
        "compile, from the cache": redpebble.compile(model, cache=folder / "cache"),
        "two threads": redpebble.compile(model, threads=2, cache=False),
        "session": redpebble.session(file),
        "session of bytes": redpebble.session(model.SerializeToString()),
        "optimize": redpebble.session(optimized.proto),
    }.items():
        (found,) = runner.run(None, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=name)
    words = ["optimize", str(file), str(output), "--target", "ort", "--library", "--cpu", "neoverse-v2"]
    for command in (words, ["check", str(file)], ["explain", str(file)]):
        done = typer.testing.CliRunner().invoke(app, command)
        assert done.exit_code == 0, (command, done.output, done.exception)
    assert output.with_suffix(".so").read_bytes()[:4] == ELF
    assert available_memory() is None
    try:
        redpebble.register()
    except OSError as error:
        print(error)


if __name__ == "__main__":
    logging.basicConfig()
    pretend()
    main(Path(sys.argv[1]))
