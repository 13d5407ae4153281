"""A model as a callable that is sent to workers: it opens there, once, and no worker compiles what another has."""

import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.export.save_model import save_model
from redpebble.ort.session import write_library
from tests.ort.provider_models import MLP, feeds, model, plain_session

WORKER = """
import pickle, sys, numpy as np, redpebble
predict = pickle.loads(bytes.fromhex(sys.argv[1]))
sys.stdin.readline()  # all start at once
y = predict(np.load(sys.argv[2]))
np.save(sys.argv[3], y)
print(int(redpebble.counters()["networks_compiled"]))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(MLP).SerializeToString())
    return path


def expected(batch: int) -> NDArray[np.float32]:
    return plain_session(model(MLP)).run(None, feeds(batch))[0]


def test_arrays_give_arrays_and_names_give_names(file: Path) -> None:
    predict = redpebble.Predictor(file)
    for batch in (0, 1, 7, 17):
        x = feeds(batch)["x"]
        np.testing.assert_allclose(predict(x), expected(batch), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            predict(x.astype(np.float64).tolist() if batch else x), expected(batch), rtol=1e-4, atol=1e-5
        )
    keeping = redpebble.Predictor(file, keep=["id"], outputs=["y"])
    outputs = keeping({"id": np.arange(7), "x": feeds(7)["x"], "other": ["a"] * 7})
    assert list(outputs) == ["id", "y"]
    np.testing.assert_array_equal(outputs["id"], np.arange(7))
    np.testing.assert_allclose(outputs["y"], expected(7), rtol=1e-4, atol=1e-5)


def test_it_is_sent_without_its_session(file: Path) -> None:
    predict = redpebble.Predictor(file, threads=1)
    predict(feeds(1)["x"])
    copy = pickle.loads(pickle.dumps(predict))
    assert repr(copy) == f"Predictor({str(file)!r}, threads=1)"
    np.testing.assert_allclose(copy(feeds(7)["x"]), expected(7), rtol=1e-4, atol=1e-5)
    assert copy.session is not predict.session


def test_threads_share_one_session(file: Path) -> None:
    predict = redpebble.Predictor(file)

    def opened(_: int) -> int:
        return id(predict.session)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(opened, range(8)))) == 1


FORKED = """
import os, sys, numpy as np, redpebble
predict, x = redpebble.Predictor(sys.argv[1], threads=int(sys.argv[2])), np.load(sys.argv[3])
y = predict(x)
child = os.fork()
if child == 0:
    np.testing.assert_array_equal(predict(x), y)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_process_opens_its_own_session(file: Path, tmp_path: Path, threads: int) -> None:
    np.save(tmp_path / "x.npy", feeds(7)["x"])
    words = [sys.executable, "-c", FORKED, str(file), str(threads), str(tmp_path / "x.npy")]
    subprocess.run(words, check=True, timeout=120)


def test_workers_that_start_at_once_compile_a_model_once(file: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", feeds(7)["x"])
    sent = pickle.dumps(redpebble.Predictor(file)).hex()
    environment = os.environ | {"REDPEBBLE_CACHE": str(tmp_path / "cache")}
    words = [[sys.executable, "-c", WORKER, sent, "x.npy", f"{index}.npy"] for index in range(3)]
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen(one, cwd=tmp_path, env=environment, text=True, stdin=pipe, stdout=pipe) for one in words
    ]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    counts = [int(worker.communicate(timeout=120)[0]) for worker in workers]
    assert sorted(counts) == [0, 0, 1]
    for index in range(3):
        np.testing.assert_allclose(np.load(tmp_path / f"{index}.npy"), expected(7), rtol=1e-4, atol=1e-5)
    assert not list((tmp_path / "cache").rglob("*.lock"))


def test_a_pool_of_processes_maps_it(file: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (found,) = pool.map(redpebble.Predictor(file), [feeds(7)["x"]])
    np.testing.assert_allclose(found, expected(7), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_library_beside_the_model_needs_no_cache(file: Path, tmp_path: Path) -> None:
    optimized = redpebble.optimize(file).model
    save_model(optimized, tmp_path / "o.onnx")
    write_library(optimized, tmp_path / "o.so")
    predict = redpebble.Predictor(tmp_path / "o.onnx", library=tmp_path / "o.so")
    np.testing.assert_allclose(predict(feeds(7)["x"]), expected(7), rtol=1e-4, atol=1e-5)


def test_wrong_batches_are_one_line(file: Path) -> None:
    predict = redpebble.Predictor(file)
    with pytest.raises(ValueError, match=r"inputs: expected 1 \(x\), got 2"):
        predict(feeds(1)["x"], feeds(1)["x"])
    with pytest.raises(ValueError, match="batch: expected x, got a, b"):
        predict({"a": 1, "b": 2})
    with pytest.raises(ValueError, match="threads: expected 0 or more, got -1"):
        redpebble.Predictor(file, threads=-1)
