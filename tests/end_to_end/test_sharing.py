"""Compiled networks, and the folder that keeps them, are shared: by threads, by processes, by one run and the next."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.models.zoo import build, save
from redpebble.verification.feeds import inputs_for
from redpebble.verification.oracle import Oracle
from tests.end_to_end.agreement import assert_close

SPECS = ("ffnn(depth=2, width=40, density=0.2)", "masked_mlp(depth=2, width=24)", "resmlp(depth=1, width=16)")

SCRIPT = """
import sys, numpy as np, redpebble
network = redpebble.compile(sys.argv[1], cache=sys.argv[2])
x = np.linspace(-1, 1, 7 * 40, dtype=np.float32).reshape(7, 40)
sys.stdout.write(network(x).tobytes().hex())
"""
"""Compiles a model with a cache folder and prints the bits that it computes."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model file."""
    file = tmp_path / "model.onnx"
    save(build(SPECS[0]), file)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache folder that is not there yet."""
    return tmp_path / "cache"


def inputs_of(seed: int, rows: int = 7) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, 40)).astype(np.float32)


def kept(folder: Path) -> list[Path]:
    """Networks; machine code for other weights and digests of files that have not changed lie beside them."""
    files = sorted(folder.iterdir())
    assert all(file.suffix in (".pebble", ".object") or file.name.startswith("digest-") for file in files)
    return [file for file in files if file.suffix == ".pebble"]


def fingerprint(file: Path) -> tuple[int, int]:
    """What changes when a file is written anew: `os.replace` brings another inode and another time."""
    status = file.stat()
    return status.st_mtime_ns, status.st_ino


@pytest.mark.slow
def test_many_threads_use_several_networks_with_different_batches_at_once() -> None:
    models: list[ir.Model] = [build(spec) for spec in SPECS]
    networks = [
        redpebble.compile(model, threads=threads, cache=False) for model, threads in zip(models, (1, 2, 3), strict=True)
    ]
    oracles = [Oracle(model) for model in models]
    jobs = [
        (which, inputs_for(models[which], batch, np.random.default_rng((which, batch))))
        for batch in (0, 1, 7, 17, 64, 65, 130, 200) * 4
        for which in range(len(models))
    ]

    def run(job: tuple[int, dict[str, NDArray[Any]]]) -> list[NDArray[np.float32]]:
        which, feeds = job
        return networks[which].run(None, feeds)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, jobs))
    for (which, feeds), result in zip(jobs, results, strict=True):
        assert_close(result, oracles[which].run(feeds), SPECS[which])


@pytest.mark.slow
def test_threads_that_compile_the_same_model_at_once_share_a_folder(path: Path, folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        pending = [pool.submit(redpebble.compile, path, cache=folder) for _ in range(6)]
        networks = [one.result() for one in pending]
    expected = Oracle(path).run({"x": inputs_of(0)})
    for network in networks:
        assert_close([network.run(None, {"x": inputs_of(0)})[0]], expected)
    assert len(kept(folder)) == 1


@pytest.mark.slow
def test_processes_that_compile_the_same_model_at_once_share_a_folder(path: Path, folder: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(path), str(folder)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    here = redpebble.compile(path, cache=folder)
    x = np.linspace(-1, 1, 7 * 40, dtype=np.float32).reshape(7, 40)
    assert {*printed} == {np.asarray(here(x)).tobytes().hex()}
    assert len(kept(folder)) == 1


def test_a_second_compile_reads_what_the_first_one_kept(path: Path, folder: Path) -> None:
    first = redpebble.compile(path, cache=folder)
    (file,) = kept(folder)
    before = fingerprint(file)
    second = redpebble.compile(path, cache=folder)
    assert kept(folder) == [file]
    assert fingerprint(file) == before  # what is compiled anew is written anew
    assert second.report == first.report
    for rows in (0, 1, 7, 64, 65):
        np.testing.assert_array_equal(first(inputs_of(1, rows)), second(inputs_of(1, rows)))


def test_a_model_is_known_again_by_its_content_wherever_it_comes_from(path: Path, folder: Path) -> None:
    redpebble.compile(path, cache=folder)
    redpebble.compile(path.read_bytes(), cache=folder)
    path.rename(path.with_name("moved.onnx"))
    redpebble.compile(path.with_name("moved.onnx"), cache=folder)
    assert len(kept(folder)) == 1


def test_other_weights_are_another_model(path: Path, folder: Path) -> None:
    first = redpebble.compile(path, cache=folder)
    save(build(SPECS[0], seed=1), path)
    second = redpebble.compile(path, cache=folder)
    assert len(kept(folder)) == 2
    assert not np.array_equal(first(inputs_of(0)), second(inputs_of(0)))
    assert_close([np.asarray(second(inputs_of(0)))], Oracle(path).run({"x": inputs_of(0)}))


def test_other_weights_in_a_file_of_their_own_are_another_model(path: Path, folder: Path) -> None:
    save(build(SPECS[0]), path, external_data=True)
    redpebble.compile(path, cache=folder)
    data = path.with_name("model.onnx.data")
    array = np.fromfile(data, dtype=np.float32)
    (-array).tofile(data)
    network = redpebble.compile(path, cache=folder)
    assert len(kept(folder)) == 2
    assert_close([np.asarray(network(inputs_of(0)))], Oracle(path).run({"x": inputs_of(0)}))


@pytest.mark.parametrize(
    "damage", ["empty", "changed", *(pytest.param(one, marks=pytest.mark.slow) for one in ("cut", "other"))]
)
def test_a_kept_file_that_is_damaged_is_ignored_and_replaced(damage: str, path: Path, folder: Path) -> None:
    first = redpebble.compile(path, cache=folder)
    (file,) = kept(folder)
    content = file.read_bytes()
    middle = len(content) // 2
    changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    file.write_bytes({"empty": b"", "cut": content[:-100], "changed": changed, "other": b"text" * 100}[damage])
    second = redpebble.compile(path, cache=folder)
    assert kept(folder) == [file]
    assert file.read_bytes() == content
    np.testing.assert_array_equal(first(inputs_of(2)), second(inputs_of(2)))


def test_a_folder_that_cannot_be_written_to_is_done_without(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    network = redpebble.compile(path, cache=tmp_path / "file")
    assert_close([np.asarray(network(inputs_of(3)))], Oracle(path).run({"x": inputs_of(3)}))


def test_code_for_another_machine_is_not_mixed_up(path: Path, folder: Path) -> None:
    host, generic = (redpebble.compile(path, target=target, cache=folder) for target in (None, CpuTarget.generic()))
    assert len(kept(folder)) == 2
    assert generic.program.target == CpuTarget.generic()
    assert_close([np.asarray(generic(inputs_of(4)))], [np.asarray(host(inputs_of(4)))])
