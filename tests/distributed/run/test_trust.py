"""When something is wrong with parts or ranks, all ranks end with one line, and no output is half-written."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redpebble.distributed.parts.part_file import PARTS_VERSION, read_part, write_part
from redpebble.distributed.parts.steps import Receive, Send
from redpebble.distributed.run.run_parts import OutputFile
from redpebble.models.zoo import build
from tests.distributed.launching import MPIEXEC, REDPEBBLE, Case, mpiexec, write_case

REFUSED = Path(__file__).with_name("refused_program.py")
END = (signal.SIGINT, signal.SIGTERM)
ENDLESS = Path(__file__).with_name("endless_program.py")
SIGNALLED = Path(__file__).with_name("signalled_program.py")
UNFINISHED = Path(__file__).with_name("unfinished_program.py")
LATE = Path(__file__).with_name("late_program.py")
MODEL = "ffnn(depth=2, width=20, density=0.5)"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts for two ranks, and an input."""
    folder = tmp_path_factory.mktemp("trust")
    write_case(folder / "case", build(MODEL), Case("rows", 2, batches=(7,)))
    np.save(folder / "case" / "x.npy", np.load(folder / "case" / "feeds.npz")["in0.7"])
    return folder / "case"


def run(parts: Path, x: Path, y: Path, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    return mpiexec(ranks, REDPEBBLE, "run", parts, "--input", x, "--output", y)


def assert_refused(done: subprocess.CompletedProcess[str], message: str, y: Path) -> None:
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 2
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in done.stderr
    assert not y.exists()
    assert not list(y.parent.glob(".*.part"))


@pytest.mark.slow
def test_parts_that_fit_are_run(case: Path, tmp_path: Path) -> None:
    words = ("run", case / "parts", "--input", case / "x.npy", "--output", tmp_path / "y.npy", "--json")
    done = mpiexec(2, REDPEBBLE, *words)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.load(case / "feeds.npz")["out0.7"], 1e-4, 1e-5)
    found = json.loads(done.stdout)
    ranks = found["ranks"]
    assert (found["command"], found["plan"]["kind"]) == ("run", "rows")
    assert sum(rank["row_bytes_sent"] for rank in ranks) == sum(rank["row_bytes_received"] for rank in ranks) > 0


def broken(case: Path, folder: Path, how: str) -> Path:
    """A copy of the parts with something wrong."""
    parts = folder / "parts"
    shutil.copytree(case / "parts", parts)
    first, second = parts / "part-0000.pebble", parts / "part-0001.pebble"
    match how:
        case "missing":
            second.unlink()
        case "damaged":
            data = bytearray(second.read_bytes())
            data[-5] ^= 1
            second.write_bytes(data)
        case "cut short":
            second.write_bytes(second.read_bytes()[:100])
        case "swapped":
            data = first.read_bytes()
            first.write_bytes(second.read_bytes())
            second.write_bytes(data)
        case "endless":
            part = read_part(second)
            steps = [
                Receive(step.tag, step.buffer, step.routes) if isinstance(step, Send) else step for step in part.steps
            ]
            digest = write_part(parts / "new", replace(part, steps=tuple(steps)))
            (parts / "new").replace(second)  # which is mapped
            plan = json.loads((parts / "plan.json").read_text())
            plan["parts"][1]["sha256"] = digest
            (parts / "plan.json").write_text(json.dumps(plan))
        case "no plan":
            (parts / "plan.json").unlink()
        case "outputs of another size":
            plan = json.loads((parts / "plan.json").read_text())
            plan["outputs"][0]["sizes"][0] = [[0, 1], [["batch", 1]]]
            (parts / "plan.json").write_text(json.dumps(plan))
        case "plan of another format":
            plan = json.loads((parts / "plan.json").read_text())
            (parts / "plan.json").write_text(json.dumps(plan | {"format": 999}))
        case _:
            (parts / "plan.json").write_text("{")
    return parts


def test_damaged_parts_are_refused(case: Path, tmp_path: Path) -> None:
    done = run(broken(case, tmp_path, "damaged"), case / "x.npy", tmp_path / "y.npy")
    assert_refused(done, "part-0001.pebble, is damaged or of another plan", tmp_path / "y.npy")


@pytest.mark.slow
def test_outputs_that_fit_no_rank_are_refused_with_one_line(case: Path, tmp_path: Path) -> None:
    parts, y = broken(case, tmp_path, "outputs of another size"), tmp_path / "y.npy"
    assert_refused(run(parts, case / "x.npy", y), "could not be broadcast", y)


REFUSALS = {
    "endless": "rank 0 sends 11 rows of value 0 to rank 1, which expects 9",
    "cut short": "part-0001.pebble, is damaged or of another plan",
    "missing": "part-0001.pebble, cannot be read: no such file",
    "no json": "plan.json is no plan of parts, or damaged",
    "no plan": "plan.json cannot be read: no such file",
    "plan of another format": f"plan.json: expected format {PARTS_VERSION}, got 999",
    "swapped": "part-0000.pebble, is damaged or of another plan",
}


@pytest.mark.slow
def test_broken_parts_are_refused_by_all_ranks_alike(case: Path, tmp_path: Path) -> None:
    folders = [broken(case, tmp_path / how, how) for how in REFUSALS]
    done = mpiexec(2, sys.executable, REFUSED, "load", *folders)
    for how, message in REFUSALS.items():
        lines = [line for line in done.stdout.splitlines() if line.startswith(f"{how}: ")]
        assert len(lines) == 2, done.stdout + done.stderr
        assert lines[0] == lines[1]
        assert message in lines[0]


@pytest.mark.slow
def test_what_does_not_fit_is_refused_with_one_line(case: Path, tmp_path: Path) -> None:
    x, y, wide, three = case / "x.npy", tmp_path / "y.npy", tmp_path / "wide.npy", tmp_path / "three"
    np.save(wide, np.zeros((7, 21), dtype=np.float32))
    write_case(three, build(MODEL), Case("rows", 3, batches=()))
    attempts = (
        (three / "parts", x, y, 10, "holds 3 parts: expected as many ranks, got 2"),
        (case / "parts", wide, y, 10, "input 'x': expected size 20 along axis 1, got 21"),
        (case / "parts", x, tmp_path / "nowhere" / "y.npy", 10, "cannot write"),
        (case / "parts", x, y, 0.5, "patience: expected 1.0 s or more, got 0.5"),
    )
    words = [",".join(map(str, attempt[:-1])) for attempt in attempts]
    done = mpiexec(2, sys.executable, REFUSED, "files", *words)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 3, done.stderr
    assert all(attempt[-1] in line for attempt, line in zip(attempts, errors, strict=False))
    assert sorted(done.stdout.splitlines()) == sorted([*["exit code 2"] * 6, *[attempts[-1][-1]] * 2])
    assert not list(tmp_path.glob("*y.npy*"))


def test_an_error_of_one_rank_alone_ends_all(case: Path, tmp_path: Path) -> None:
    words = ("--input", case / "x.npy", "--output", tmp_path / "y.npy", "--report", tmp_path / "nowhere" / "r.json")
    done = mpiexec(2, REDPEBBLE, "run", case / "parts", *words)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 2
    assert len(errors) == 1
    assert errors[0].startswith("error: rank 0: cannot write")


MISFIT_MESSAGES = (
    "expected 1 slices of inputs on rank 0, got 2",
    "slice of input 'x' on rank 1: expected dtype float32, got float64",
    "slice of input 'x' on rank 0: expected 11 columns, got shape [3, 12]",
    "ranks disagree on the number of samples: [3] on rank 0, [4] on rank 1",
)


@pytest.mark.slow
def test_slices_that_do_not_fit_are_refused_on_all_ranks(case: Path) -> None:
    done = mpiexec(2, sys.executable, REFUSED, "run", case / "parts")
    assert sorted(done.stdout.splitlines()) == sorted(2 * MISFIT_MESSAGES), done.stdout + done.stderr


@pytest.mark.slow
def test_all_ranks_end_when_one_hangs_before_mpi_starts(case: Path, tmp_path: Path) -> None:
    done = mpiexec(2, sys.executable, LATE, case / "parts", case / "x.npy", tmp_path / "y.npy", "2")
    assert done.returncode != 0
    assert "error: not all ranks have started within 6 s" in done.stderr
    assert not (tmp_path / "y.npy").exists()


@pytest.fixture
def endless(case: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Two ranks that run again and again, with the output y.npy in the test's folder."""
    words = [sys.executable, ENDLESS, case / "parts", case / "x.npy", tmp_path / "y.npy", tmp_path, "2"]
    process = subprocess.Popen(
        [str(MPIEXEC), "-n", "2", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.wait()


def process_of(rank: int, folder: Path) -> int:
    """The process of a rank, once all of them have run."""
    deadline = time.monotonic() + 300
    files = [folder / f"rank{other}" for other in (0, 1)]
    while not all(file.exists() and file.read_text() for file in files):
        assert time.monotonic() < deadline, "ranks do not run"
        time.sleep(0.05)
    return int(files[rank].read_text())


def eventually(what: Callable[[], list[Any]]) -> list[Any]:
    """Return what there still is ten seconds after the launcher has ended, which does not wait for what it ends."""
    deadline = time.monotonic() + 10
    while (found := what()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def unfinished(folder: Path) -> list[Any]:
    """Return what is left of outputs that are not complete."""
    return eventually(lambda: list(folder.glob(".*.part")))


@pytest.mark.slow
@pytest.mark.parametrize(
    "module, message",
    [("redpebble.distributed.run.run_parts", "ended by SIGTERM"), ("mpi4py", "rank 1 was ended by SIGTERM")],
    ids=["before it has a guard", "before MPI starts"],
)
def test_a_signal_to_a_rank_that_starts_ends_all_at_once(module: str, message: str, case: Path, tmp_path: Path) -> None:
    words = ("run", case / "parts", "--input", case / "x.npy", "--output", tmp_path / "y.npy", "--patience", "1000")
    done = mpiexec(2, sys.executable, SIGNALLED, module, str(int(signal.SIGTERM)), *words)
    assert (done.returncode, done.stderr.splitlines()) == (128 + signal.SIGTERM, [f"error: {message}"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP], ids=["asked", "killed", "stopped"])
def test_nothing_is_left_of_an_output_that_was_not_complete(
    how: signal.Signals, rank: int, case: Path, tmp_path: Path
) -> None:
    y = tmp_path / "y.npy"
    words = (case / "parts", case / "x.npy", y, tmp_path, "2", str(rank), str(int(how)))
    done = mpiexec(2, sys.executable, UNFINISHED, *words)
    assert (tmp_path / "was there").exists(), done
    assert done.returncode == {signal.SIGTERM: 143, signal.SIGKILL: 9, signal.SIGSTOP: 2}[how], done
    assert not unfinished(tmp_path)
    assert not y.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "rank, how", [(1, signal.SIGINT), *(pytest.param(*one, marks=pytest.mark.slow) for one in product((0, 1), END))]
)
def test_a_signal_to_one_rank_ends_all_with_one_line_and_its_exit_code(
    rank: int, how: signal.Signals, endless: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    processes = [process_of(one, tmp_path) for one in (0, 1)]
    os.kill(processes[rank], how)
    _, errors = endless.communicate(timeout=60)
    assert endless.returncode == 128 + how
    assert errors.splitlines() == [f"error: rank {rank} was ended by {how.name}"]
    assert not unfinished(tmp_path)
    assert not eventually(lambda: [one for one in processes if Path(f"/proc/{one}").exists()])


def test_a_full_disk_is_an_error_before_anything_is_computed(tmp_path: Path) -> None:
    command = f"""
mount -t tmpfs -o size=64k tmpfs {tmp_path} && exec {sys.executable} -c '
from pathlib import Path
from redpebble.distributed.errors import PartError
from redpebble.distributed.run.run_parts import OutputFile
output = OutputFile(Path("{tmp_path}/y.npy"), (1000, 100), "run")
try:
    output.create()
except PartError as error:
    print(error)
output.remove()
print(*Path("{tmp_path}").iterdir())
'"""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system makes no namespaces")
    done = subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"cannot write {tmp_path}/y.npy: no space left on device\n\n"), done


def test_two_runs_into_one_output_do_not_share_what_is_unfinished(tmp_path: Path) -> None:
    first, second = (OutputFile(tmp_path / "y.npy", (2, 3), token) for token in ("a", "b"))
    for output in (first, second):
        output.create()
    first.finish()
    second.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["y.npy"]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_all_ranks_end_when_one_does_not_answer(
    how: signal.Signals, endless: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    processes = [process_of(rank, tmp_path) for rank in (0, 1)]
    np.load(tmp_path / "y.npy")
    os.kill(processes[1], how)
    _, errors = endless.communicate(timeout=60)
    assert endless.returncode != 0
    if how == signal.SIGSTOP:
        assert "error: rank 1 has not answered for 2 s" in errors
    assert not eventually(lambda: [one for one in processes if Path(f"/proc/{one}").exists()])
    # what has its name is whole
    assert np.load(tmp_path / "y.npy").shape == (7, 20)
