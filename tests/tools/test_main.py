"""The command line itself: versions, help, logging, the zoo's list, the cache."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import onnx.parser
import pytest

import redpebble
from redpebble.export.save_model import save_model
from redpebble.kernels.machine import Machine
from redpebble.models import zoo
from redpebble.runtime.jit import host_target
from redpebble.runtime.store.json_cache import remember
from redpebble.tools import main as cli
from redpebble.tuning.calibration import cpu_model, machine_name
from redpebble.tuning.machines import KnownMachine, measured_before, remember_machine
from tests.support.command_line import exit_code

Run = Callable[..., tuple[int, str, str]]
"""Runs the command line; returns the exit code, what was printed, and errors."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> Run:
    def called(*words: object) -> tuple[int, str, str]:
        code = exit_code(monkeypatch, *words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return called


@pytest.fixture
def quiet_again() -> Iterator[None]:
    from redpebble.tools.console.console import console

    yield
    console.quiet = False


def modules_after(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {*done.stdout.splitlines()[-1].split()}


RARE = {"numba", "onnx.reference", "redpebble.tools.main", "rich", "scipy", "sympy.core"}
"""Modules that are loaded when something needs them: most models need none."""


def test_the_compiler_loads_few_modules() -> None:
    loaded = modules_after("import redpebble; redpebble.compile; redpebble.optimize")
    assert not RARE & loaded
    assert len(loaded) < 1100


def test_random_masks_are_compiled_without_what_structured_ones_need(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    save_model(zoo.build("ffnn(depth=2, width=256, density=0.1)"), model)
    code = "import redpebble; from redpebble.lowering.cpu_target import CpuTarget\n"
    code += f"redpebble.compile({str(model)!r}, target=CpuTarget.avx2(), cache=False)"
    assert not RARE & modules_after(code)


def test_the_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version") == (0, f"redpebble {redpebble.__version__}\n", "")


def test_the_package_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "redpebble", "-h"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "80"})
    assert "optimize" in shown.stdout
    assert "--install-completion" in shown.stdout


def test_every_command_has_help(run: Run) -> None:
    commands = [
        command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback
    ]
    assert {"optimize", "compile", "check", "bench", "explain", "zoo"} <= {*commands}
    for command in commands:
        assert run(command, "-h")[0] == 0, command


@pytest.mark.parametrize("command", [(), ("cache",)])
def test_without_a_command_help_is_shown_in_lines(run: Run, command: tuple[str, ...]) -> None:
    code, _, said = run(*command)
    assert code == 2
    assert said.startswith("Usage:")
    assert len(said.splitlines()) > 5


def test_where_all_commands_are_listed_is_told_to_who_asks_for_none_of_them(run: Run) -> None:
    assert run("nosuch")[::2] == (2, "error: no such command 'nosuch'; redpebble -h lists all\n")
    assert run("cache", "remove")[::2] == (2, "error: no such command 'remove'; redpebble cache -h lists all\n")


WHAT_LOADED = """
import sys
from redpebble.tools.main import main
try:
    main()
except SystemExit as end:
    print(end.code, [name for name in ("redpebble.driver.compiler", "onnxruntime", "numba") if name in sys.modules])
"""


@pytest.mark.parametrize("line", ["optimize no.onnx o.onnx", "bench no.onnx", "optimize m.onnx o.onnx --batch a"])
def test_what_is_wrong_with_a_command_line_is_said_before_the_compiler_is_loaded(tmp_path: Path, line: str) -> None:
    (tmp_path / "m.onnx").touch()
    command = [sys.executable, "-c", WHAT_LOADED, *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "2 []\n"
    assert done.stderr.startswith("error: ")


def test_a_file_of_measurements_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    assert run("tune", "--import", missing)[::2] == (2, f"error: '{missing}': no such file or directory\n")


def test_each_command_is_listed_with_a_whole_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "..." not in run("-h")[1].split("Commands:")[1]
    assert "..." not in run("cache", "-h")[1].split("Commands:")[1]


def test_names_of_the_package_are_listed_and_found() -> None:
    assert {"compile", "optimize", "session", "register", "__version__"} <= {*dir(redpebble)}
    assert all(hasattr(redpebble, name) for name in dir(redpebble))


def test_help_and_the_list_of_the_zoo_load_no_compiler() -> None:
    heavy = {"llvmlite", "numba", "onnx", "onnx_ir", "onnxruntime", "scipy", "sympy", "xdsl"}
    formatted = {"rich", "pydantic", "markdown_it", "numpy"}
    shown = "import redpebble.tools.main as m; m.app(['-h'], standalone_mode=False)"
    assert not (heavy | formatted) & modules_after(shown)
    assert not heavy & modules_after("import redpebble.tools.zoo_commands as z; z.zoo.list_recipes()")
    assert not (heavy | {"numpy"}) & modules_after("import redpebble")


def test_the_zoo_is_listed_with_parameters(run: Run) -> None:
    code, printed, _ = run("zoo", "--list")
    assert code == 0
    assert all(name in printed for name in (*zoo.RECIPES, "depth=4, width=500"))


def test_the_zoo_writes_where_the_second_argument_or_the_option_says(run: Run, tmp_path: Path) -> None:
    paths = tmp_path / "first.onnx", tmp_path / "second.onnx"
    assert (
        run("zoo", "ffnn(depth=1, width=8)", paths[0])[0]
        == run("zoo", "ffnn(depth=1, width=8)", "-o", paths[1])[0]
        == 0
    )
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_what_is_done_is_logged_on_request(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "model.onnx"
    zoo.save(zoo.build("ffnn(depth=1, width=16)"), path)
    with caplog.at_level(logging.INFO, logger="redpebble"):
        run("compile", path)
        run("compile", path)
    told = [record.getMessage() for record in caplog.records if record.name == "redpebble"]
    assert any(f"{path} was compiled in" in line for line in told)
    assert any(f"{path} came from the cache" in line for line in told)


def test_quiet_shows_nothing_but_errors(run: Run, quiet_again: None) -> None:
    assert run("--quiet", "zoo", "--list") == (0, "", "")
    assert run("--quiet", "zoo", "no_such_model", "-o", "m.onnx")[:2] == (2, "")


def test_the_cache_is_shown_and_cleaned_and_measurements_stay(run: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    zoo.save(zoo.build("ffnn(depth=1, width=16)"), path)
    run("compile", path)
    foreign = folder / "notes.txt"
    foreign.write_text("not ours")
    remember(folder, "machine-0123456789abcdef", {})
    _, shown, _ = run("cache", "show")
    assert str(folder) in shown.replace("\n", "")
    assert "1     " in shown
    assert "compiled networks" in shown
    assert "of at most 4.0 GiB" in shown
    code, printed, _ = run("cache", "clean")
    assert code == 0
    assert "are gone from" in printed
    assert {file.name for file in folder.iterdir()} == {"notes.txt", "machine-0123456789abcdef.json"}


def test_measurements_are_shown_and_forgotten(run: Run, folder: Path) -> None:
    assert "nothing was measured" in run("tune", "--show")[1]
    target = host_target()
    remember_machine(folder, KnownMachine(machine_name(target), cpu_model(), Machine(lanes=target.lanes)))
    code, shown, _ = run("tune", "--show")
    assert code == 0
    assert "GB/s" in shown
    assert "times of 0 kernels" in shown
    assert "1 files" in run("tune", "--reset")[1]
    assert measured_before(folder) is None


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_of_the_zoo_has_a_column_of_names(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    listed = subprocess.run(
        [sys.executable, "-m", "redpebble", "zoo", "--list"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert max(map(len, listed)) <= width
    assert {line.split()[0] for line in listed if not line.startswith(" ")} == {*zoo.RECIPES}


def test_a_model_that_is_written_over_is_shown_as_it_was(run: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    zoo.save(zoo.build("ffnn(depth=2, width=64)"), path)
    size = path.stat().st_size
    code, printed, _ = run("optimize", str(path), str(path))
    assert code == 0
    (line,) = [line for line in printed.splitlines() if line.startswith("bytes on disk")]
    assert line.split()[3:] == [f"{size:,}", f"{path.stat().st_size:,}"]


def test_weights_beside_the_model_count_on_disk(run: Run, folder: Path, tmp_path: Path) -> None:
    zoo.save(zoo.build("ffnn(depth=2, width=64)"), tmp_path / "weights.onnx", external_data=True)
    (tmp_path / "weights.onnx").rename(tmp_path / "m.onnx")
    _, printed, _ = run("optimize", str(tmp_path / "m.onnx"), str(tmp_path / "n.onnx"))
    (line,) = [line for line in printed.splitlines() if line.startswith("bytes on disk")]
    files = (("m.onnx", "weights.onnx.data"), ("n.onnx", "n.onnx.data"))
    sizes = [sum((tmp_path / name).stat().st_size for name in names) for names in files]
    assert line.split()[3:] == [f"{size:,}" for size in sizes]


@pytest.mark.parametrize(
    "text, told",
    [
        ("(float[n, 4] x) => (int64[2, k] y) { y = NonZero (x) }", "a session leaves it to onnxruntime"),
        (
            "(float[n, 4, k] x) => (float[n, 4] y) { y = ReduceMean <axes = [2], keepdims = 0> (x) }",
            "; redpebble.session leaves what is not covered to onnxruntime",
        ),
    ],
)
def test_who_compiles_a_model_that_is_not_covered_is_told_of_sessions(
    run: Run, tmp_path: Path, text: str, told: str
) -> None:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    code, _, error = run("compile", tmp_path / "m.onnx")
    assert code == 2
    assert error.endswith(f"{told}\n")
    assert error.count("session") == 1
