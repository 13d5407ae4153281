"""A process that runs a model in one engine and times its calls; the Python that runs it needs numpy and the engine.

It reads a line of JSON and answers it with another one, again and again: the model, its inputs and the number of
threads first, then numbers of calls to time, or where to write the outputs. `own_process.py` is the other side. Nothing
of redpebble is imported but where the engine is a session of ours, or MKL, which our code calls.
"""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_LETTERS = 240
"""Letters of an engine's error that are passed on."""

Run = Callable[[], list[Any]]
Options = Any
"""onnxruntime's, which is not there in every Python."""


def onnxruntime_call(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Return a call of onnxruntime."""
    runtime = import_module("onnxruntime")
    options = _session_options(threads)
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def session_call(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Return a call of a session of ours."""
    session = import_module("redpebble").session(model, _session_options(threads))
    return lambda: session.run(None, feeds)


def _session_options(threads: int) -> Options:
    options = import_module("onnxruntime").SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def openvino_call(model: str, feeds: dict[str, Any], threads: int, precision: str = "f32") -> Run:
    """Return a call of OpenVINO, compiled for the sizes of the inputs."""
    core = import_module("openvino").Core()
    settings = {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision}
    read = core.read_model(model)
    read.reshape({name: list(array.shape) for name, array in feeds.items()})
    compiled = core.compile_model(read, "CPU", settings)
    request = compiled.create_infer_request()

    def run() -> list[Any]:
        results = request.infer(feeds)
        return [results[output] for output in compiled.outputs]

    return run


def openvino_bfloat_call(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Return the same in bfloat16, which OpenVINO computes in by itself where the CPU has it."""
    return openvino_call(model, feeds, threads, "bf16")


def deepsparse_call(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Return a call of DeepSparse, compiled for the sizes of the inputs."""
    shapes, arrays = [list(array.shape) for array in feeds.values()], list(feeds.values())
    with TemporaryDirectory() as folder:
        # DeepSparse writes the sizes into the file that it reads
        copy = Path(folder) / Path(model).name
        shutil.copy(model, copy)
        for beside in Path(model).parent.iterdir():
            if beside.name != copy.name:
                (copy.parent / beside.name).symlink_to(beside)
        sizes = {"batch_size": shapes[0][0], "input_shapes": shapes}
        engine = import_module("deepsparse").Engine(str(copy), num_cores=threads, **sizes)
    return lambda: engine.run(arrays, val_inp=False)


def mkl_call(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Return a call of MKL's sparse matrices, layer by layer, for chains of linear layers."""
    engines = import_module("redpebble.tools.benching.engines.engines").ENGINES
    return engines["mkl"].load(model)(feeds, threads)


ENGINES: dict[str, Callable[[str, dict[str, Any], int], Run]] = {
    "deepsparse": deepsparse_call,
    "mkl": mkl_call,
    "onnxruntime": onnxruntime_call,
    "openvino": openvino_call,
    "openvino-bf16": openvino_bfloat_call,
    "session": session_call,
}


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy that begins at a multiple of 64 bytes."""
    room = np.empty(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def set_up(question: dict[str, Any]) -> Run | str:
    """Return the call that the first line asks for, or why there is none."""
    with np.load(question["feeds"]) as found:
        feeds = {name: aligned(found[name]) for name in found.files}
    try:
        run = ENGINES[question["engine"]](question["model"], feeds, question["threads"])
        run()
    except ModuleNotFoundError as error:
        return f"{error} in {sys.executable}"
    except Exception as error:
        return " ".join(str(error).split())[:MOST_LETTERS]
    return run


def seconds_of(run: Run, repeats: int) -> list[float]:
    """Return the seconds of each call, after one that is not timed."""
    run()
    marks = [time.perf_counter()]
    for _ in range(repeats):
        run()
        marks.append(time.perf_counter())
    return [after - before for before, after in pairwise(marks)]


def answer(run: Run, question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a later line."""
    if "outputs" in question:
        np.savez(question["outputs"], *run())
        return {"result": []}
    return {"result": seconds_of(run, question["repeats"])}


def main() -> None:
    """Answer lines until there are no more."""
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # what an engine prints is no answer
        run = set_up(json.loads(sys.stdin.readline()))
        print(json.dumps({"refused": run} if isinstance(run, str) else {"result": []}), file=out, flush=True)
        if not isinstance(run, str):
            for line in sys.stdin:
                print(json.dumps(answer(run, json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
