"""Processes that fork, and threads that call at once, while sessions hold networks of ours: it may hang.

`python -m tests.end_to_end.session_program WAY SCENARIO`; it ends with 0 where all went well.
"""

import os
import sys
import threading

import numpy as np
import onnxruntime

import redpebble
from tests.ort.provider_models import MLP, feeds, model


def session(way: str) -> onnxruntime.InferenceSession:
    """With one thread: those of onnxruntime do not live in a child."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    if way == "session":
        return redpebble.session(model(MLP), options)
    options.add_provider_for_devices(redpebble.register(), {})
    return onnxruntime.InferenceSession(model(MLP).SerializeToString(), options)


def forks(way: str) -> None:
    """Children run the session that their parent has made and used, also amid its calls."""
    live, x = session(way), feeds(50)
    (expected,) = live.run(None, x)
    stop = threading.Event()

    def calls() -> None:
        while not stop.is_set():
            live.run(None, x)

    caller = threading.Thread(target=calls)
    caller.start()
    for _ in range(4):
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(live.run(None, x)[0], expected) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop.set()
    caller.join()


def shapes(way: str) -> None:
    """Threads call with many shapes at once."""
    live, switching = session(way), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    expected = {batch: live.run(None, feeds(batch))[0] for batch in range(60)}
    wrong: list[int] = []

    def calls(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(60).tolist()
        wrong.extend(one for one in order if not np.array_equal(live.run(None, feeds(one))[0], expected[one]))

    callers = [threading.Thread(target=calls, args=(seed,)) for seed in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    sys.setswitchinterval(switching)
    assert not wrong, wrong


if __name__ == "__main__":
    {"forks": forks, "shapes": shapes}[sys.argv[2]](sys.argv[1])
