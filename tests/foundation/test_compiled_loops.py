"""Compiled loops where nothing can be kept: they work, and the first call says so."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from redpebble.foundation.compiled_loops import compiled_loop, is_ready
from redpebble.runtime.store.kept_files import kept_files

LOOPS = """
from redpebble.foundation.compiled_loops import compiled_loop

@compiled_loop()
def twice(x):
    return x + x

@compiled_loop()
def fourfold(x):
    return twice(twice(x))
"""

CALLS = """
import resource, sys, warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    if sys.argv[1] == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
    import loops
    counts = [len(said)]
    values = []
    for loop in (loops.fourfold, loops.twice, loops.fourfold):
        values.append(loop(3))
        counts.append(len(said))
print(values, counts, *{str(warning.message) for warning in said}, sep="\\n")
"""

VALUES = "[12, 6, 12]"
WARNING = "compiling a search, which takes some seconds, in each process: there is no folder to keep it in"


RECORD = """
from typing import NamedTuple
from redpebble.foundation.compiled_loops import compiled_loop

class {name}(NamedTuple):
    value: int

@compiled_loop()
def times(pair, number):
    return {factor} * pair.value * number
"""

CALLER = """
from house.layer.record import {name}, times
from redpebble.foundation.compiled_loops import compiled_loop

@compiled_loop()
def product(pair):
    return times(pair, 5)
print(product({name}(7)))
"""


def calls(folder: Path, place: str, **environment: str) -> list[str]:
    """Lines that a process prints which defines loops in a folder and calls them."""
    (folder / "loops.py").write_text(LOOPS)
    kept = ("NUMBA", "XDG", "HOME", "REDPEBBLE")
    words = {name: value for name, value in os.environ.items() if not name.startswith(kept)}
    done = subprocess.run(
        [sys.executable, "-B", "-c", CALLS, place],
        cwd=folder,
        env=words | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@compiled_loop()
def half(number: int) -> float:
    return number / 2


@compiled_loop()
def quarter(number: int) -> float:
    return half(number) / 2


def test_a_loop_is_not_compiled_once_it_is_late_and_waited_for_before() -> None:
    asked: list[bool] = []

    def is_late() -> bool:
        asked.append(True)
        return len(asked) < 2

    assert not is_ready(quarter, is_late, 1)
    assert len(asked) == 1
    assert is_ready(quarter, is_late, 1)
    assert is_ready(quarter, lambda: True, 3)
    assert (quarter(6), half(6)) == (1.5, 3.0)


SLOW = """
import os, socket, time
from redpebble.foundation.compiled_loops import compiled_loop

if os.environ["ASKS"] != str(os.getpid()) and os.environ["PORT"]:
    test = socket.create_connection(("127.0.0.1", int(os.environ["PORT"])))
    open("begun", "w").close()
    while True:
        time.sleep(1)

@compiled_loop()
def twice(x):
    return x + x
"""

ASKS = """
import os
from pathlib import Path
from redpebble.foundation.compiled_loops import is_ready
os.environ["ASKS"] = str(os.getpid())
from slow import twice
print(is_ready(twice, Path("begun").exists, 3), *twice.compiled.stats.cache_hits.values())
"""


def asked(folder: Path, port: str) -> str:
    """What a process says that asks for a loop; where there is a port, the one that compiles it hangs."""
    (folder / "slow.py").write_text(SLOW)
    words = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    words |= {"PORT": port, "REDPEBBLE_CACHE": str(folder / "cache")}
    program = [sys.executable, "-B", "-c", ASKS]
    return subprocess.run(
        program, cwd=folder, env=words, capture_output=True, text=True, timeout=120, check=True
    ).stdout


@pytest.mark.slow
def test_a_process_compiles_for_those_in_a_hurry_and_ends_with_them(tmp_path: Path) -> None:
    assert asked(tmp_path, "") == "True 1\n"
    (tmp_path / "cache").rename(tmp_path / "other")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert asked(tmp_path, str(server.getsockname()[1])) == "False\n"
        compiles, _ = server.accept()
        with compiles:
            compiles.settimeout(120)
            assert compiles.recv(1) == b""


def test_only_loops_are_compiled() -> None:
    with pytest.raises(TypeError, match="expected a compiled loop, got <built-in function abs>"):
        is_ready(abs, lambda: False, 1)


@pytest.mark.slow
def test_where_there_is_no_folder_the_first_call_says_that_it_compiles(tmp_path: Path) -> None:
    assert calls(tmp_path, "closed", HOME="/dev/null") == [VALUES, "[0, 1, 1, 1]", WARNING]


@pytest.mark.slow
def test_a_cache_that_is_no_path_is_no_folder_here(tmp_path: Path) -> None:
    assert calls(tmp_path, "closed", REDPEBBLE_CACHE="~/cache")[1] == "[0, 1, 1, 1]"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loops.py"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of files are those of Linux")
def test_a_disk_that_is_full_keeps_nothing(tmp_path: Path) -> None:
    assert calls(tmp_path, "full", REDPEBBLE_CACHE=str(tmp_path / "cache")) == [VALUES, "[0, 1, 1, 1]", WARNING]
    assert list(tmp_path.rglob("*.nb*")) == []


@pytest.mark.slow
def test_what_was_compiled_is_kept_in_the_cache_alone(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert calls(tmp_path, "open", REDPEBBLE_CACHE=str(cache))[:2] == [VALUES, "[0, 0, 0, 0]"]
    kept = [file.path for file in kept_files(cache)]
    assert {*kept} == {*tmp_path.rglob("*.nb*")}
    assert {path.name.partition("-")[0] for path in kept} == {"loops.twice", "loops.fourfold"}
    assert {oct(folder.stat().st_mode)[-3:] for folder in (cache, cache / "loops", kept[0].parent)} == {"700"}


@pytest.mark.slow
def test_a_folder_that_others_can_write_to_keeps_no_loops(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    assert calls(tmp_path, "open", REDPEBBLE_CACHE=str(cache)) == [VALUES, "[0, 1, 1, 1]", WARNING]
    assert list(tmp_path.rglob("*.nb*")) == []


@pytest.mark.slow
def test_a_loop_is_compiled_again_when_another_file_of_its_layer_changes(tmp_path: Path) -> None:
    layer = tmp_path / "house" / "layer"
    layer.mkdir(parents=True)
    for name, factor in (("Pair", 2), ("Couple", 3)):
        (layer / "record.py").write_text(RECORD.format(name=name, factor=factor))
        (layer / "caller.py").write_text(CALLER.format(name=name))
        program = [sys.executable, "-B", "-c", "import house.layer.caller"]
        words = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
        words["REDPEBBLE_CACHE"] = str(tmp_path / "cache")
        done = subprocess.run(
            program, cwd=tmp_path, env=words, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{35 * factor}\n", "")
