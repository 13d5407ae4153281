"""Engines in processes of their own, each in the Python that it is installed in: for libraries that do not share one.

`engine_process.py` runs there. A call times itself where it runs, so that the pipe between the processes costs nothing,
and an engine waits for its turn without using a core.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import NotCoveredError, PeerError
from .loaded import Feeds, Loaded, ModelPath

PROGRAM: Final = Path(__file__).with_name("engine_process.py")
PROCESSES: Final = ("deepsparse", "mkl", "onnxruntime", "openvino", "openvino-bf16", "session")
"""Engines that a process of their own can run."""


class RemoteCall:
    """A model in a process of its own: called, it returns the outputs; `seconds` times calls where they run.

    Raises:
        PeerError: the process has ended.
        NotCoveredError: there is no such library, or it refuses the model.
    """

    def __init__(self, command: list[str], setup: dict[str, Any], feeds: Feeds) -> None:
        """Start the process; `setup` is the model and the number of threads."""
        self._folder = TemporaryDirectory()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        path = Path(self._folder.name) / "feeds.npz"
        np.savez(path, allow_pickle=False, **feeds)
        self._ask(setup | {"feeds": str(path)})

    def __call__(self) -> list[NDArray[Any]]:
        path = Path(self._folder.name) / "outputs.npz"
        self._ask({"outputs": str(path)})
        with np.load(path) as found:
            return [found[name] for name in found.files]

    def seconds(self, repeats: int) -> list[float]:
        """Return the seconds of each of `repeats` calls, after one that is not timed."""
        return self._ask({"repeats": repeats})

    def __del__(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()  # its input has ended, so it ends
        self._folder.cleanup()

    def _ask(self, question: dict[str, Any]) -> list[float]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            print(json.dumps(question), file=stdin, flush=True)
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError("the process of the engine has ended")
        answer = json.loads(line)
        if "refused" in answer:
            raise NotCoveredError(answer["refused"])
        return answer["result"]


@dataclass(frozen=True)
class OwnProcess:
    """An engine in a process of its own, in the Python at `python`."""

    engine: str
    python: str
    settle_seconds: float = 3e-3

    def load(self, model: ModelPath) -> Loaded:
        """Return the model in the engine, which starts when it is called.

        Raises:
            PeerError: there is no such Python.
        """
        if not os.access(self.python, os.X_OK):
            raise PeerError(f"expected a Python, got {self.python}")
        path = os.path.abspath(model)

        def call(feeds: Feeds, threads: int) -> RemoteCall:
            setup = {"engine": self.engine, "model": path, "threads": threads}
            return RemoteCall([self.python, str(PROGRAM)], setup, feeds)

        return call
