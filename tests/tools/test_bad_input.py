"""Input that is wrong: one line that names the expected values, exit code 2, nothing written, and before any work."""

import resource
from pathlib import Path

import numpy as np
import pytest

import redpebble
from redpebble.models import zoo
from tests.frontend.reading.test_limits import folded, functions, sparse
from tests.support.command_line import MODEL_COMMANDS, exit_code

BROKEN = {
    "none.onnx": "'none.onnx' cannot be read: no such file or directory",
    "folder": "'folder' cannot be read: is a directory",
    "empty.onnx": "expected an ONNX model, got 'empty.onnx', which is empty",
    "text.onnx": "'text.onnx' is no ONNX model, or cut short",
    "half.onnx": "'half.onnx' is no ONNX model, or cut short",
    "cut.onnx": "'cut.onnx' is no ONNX model, or cut short",
    "lost.onnx": "tensor layers.0.weight: file 'lost.onnx.data' is missing",
    "short.onnx": "tensor layers.0.weight: expected 4096 bytes in file 'short.onnx.data', got 40",
}
"""What is no model -> what is said of it."""

MADE_NODES = f"expected at most 1000000 nodes of model-local functions, got {1 << 31}"

LINES = {
    "optimize m.onnx no/o.onnx": "cannot write no/o.onnx: no is no folder",
    "optimize m.onnx folder": "cannot write folder: it is a folder",
    "optimize m.onnx o.txt": "expected a file to write that ends in .onnx, got o.txt",
    "optimize m.onnx o.onnx --report no/r.json": "cannot write no/r.json: no is no folder",
    "optimize m.onnx o.onnx --target gpu": "invalid value for '--target': 'gpu' is not one of 'portable', 'ort'",
    "optimize m.onnx o.onnx --check -1": "runs: expected 0 or more, got -1",
    "optimize m.onnx o.onnx --check 1 --batch 0": "batches: expected 1 or more each, got 0",
    "optimize m.onnx o.onnx --library": "no library for o.onnx: ",
    "optimize m.onnx": "missing argument 'OUT.onnx'",
    "compile m.onnx -o no/x.pebble": "cannot write no/x.pebble: no is no folder",
    "compile m.onnx --threads 0": "threads: expected 1 or more, got 0",
    "compile m.onnx --reorder-seconds -1": "reorder_seconds: expected 0 or more, got -1.0",
    "compile m.onnx --stop-after tile --elide -1": "expected 0 or more elements of a constant to print, got -1",
    "check m.onnx --batch x": "expected numbers such as 1,32, got 'x'",
    "check m.onnx --input-shape x": "shape: expected NAME:N,N such as x:1,64, got 'x'",
    "check m.onnx --input-shape z:1,2": "expected a shape for x, got one for 'z'",
    "check m.onnx --input-shape x:3": "input 'x': expected a shape of 2 axes, got 1",
    "check m.onnx --inputs none.npz": "'none.npz' cannot be read: no such file or directory",
    "check m.onnx --inputs text.onnx": "text.onnx holds no arrays: ",
    "check m.onnx --against none.onnx": "onnxruntime: ",
    "check m.onnx --report no/r.json": "cannot write no/r.json: no is no folder",
    "bench m.onnx --report no/r.json": "cannot write no/r.json: no is no folder",
    "bench m.onnx --against nothing": "engine: expected one of session, native, ",
    "tune --seconds -1": "expected 0 seconds or more to tune, got -1.0",
    "tune m.onnx --seconds nan": "expected 0 seconds or more to tune, got nan",
    "explain m.onnx --report no/x.html": "cannot write no/x.html: no is no folder",
    "explain m.onnx --plot no/x.svg": "cannot write no/x.svg: no is no folder",
    "explain m.onnx --plot x.gif": "expected a drawing that ends in .png, .svg, .pdf, got x.gif",
    "explain m.onnx m.onnx --report x.html": "expected a report of a sweep that ends in .json, got x.html",
    "explain m.onnx --memory 20,2": "expected a fast memory of 3 values or more, got 2",
    "explain m.onnx --memory 4KiX": "memory: expected rows such as 20 or bytes such as 48KiB, got '4KiX'",
    "explain m.onnx --proposals -1": "expected 0 proposals or more to search, got -1",
    "explain m.onnx -p 0": "invalid value for '-p' / '--parts': ",
    "schedule m.onnx --memory 9 --save no/o.npz": "cannot write no/o.npz: no is no folder",
    "schedule m.onnx --memory 9 --save o.npz --seconds inf": "expected 0 seconds or more to search, got inf",
    "schedule m.onnx --memory 9 --save o.npz --policy x": "invalid value for '--policy': 'x' is not one of ",
    "partition m.onnx -p 0 -o parts": "expected 1 part or more, got 0",
    "partition m.onnx -p 100000 -o parts": "expected up to 10000 parts, got 100000",
    "simulate m.onnx -p 2,100000": "expected up to 10000 parts, got 100000",
    "explain m.onnx -p 100000": "expected up to 10000 parts, got 100000",
    "partition m.onnx -p 2 -o m.onnx": "m.onnx: expected a new folder or one of parts, got one without",
    "partition m.onnx -p 2 -o parts --memory-per-machine 4X": "expected bytes such as 65536, 512MiB or 4GiB, got '4X'",
    "partition m.onnx -p 2 -o parts --imbalance -1": "expected an imbalance of 0 or more, got -1",
    "partition m.onnx -p 2 -o parts --batch 0": "expected a batch of 1 sample or more, got 0",
    "simulate m.onnx -p x": "expected numbers such as 1,32, got 'x'",
    "simulate m.onnx -p 1 --plot no/x.svg": "cannot write no/x.svg: no is no folder",
    "zoo nothing -o z.onnx": "model of the zoo: expected one of ",
    "zoo ffnn(depht=2) -o z.onnx": "ffnn: expected depth=4, ",
    "zoo ffnn(depth=0) -o z.onnx": "ffnn: depth: expected 1 or more, got 0",
    "zoo ffnn(depth=1 -o z.onnx": "expected a model as name or ",
    "zoo ffnn --int8 -o z.onnx": "--int8: expected one of minilm_50, ",
    "zoo minilm_2 --int8 -o z.onnx": "--int8: expected one of minilm_50, ",
    "zoo ffnn": "zoo needs OUT.onnx, where the model goes",
    "zoo nosuch": "model of the zoo: expected one of ",
    "zoo ffnn -o no/z.onnx": "cannot write no/z.onnx: no is no folder",
    "run none --input x.npy --output y.npy": "none/plan.json cannot be read: no such file or directory",
    "check functions.onnx": MADE_NODES,
    "check m.onnx --against functions.onnx": MADE_NODES,
    "optimize functions.onnx o.onnx --check 1": MADE_NODES,
    "bench functions.onnx": MADE_NODES,
    "prune functions.onnx o.onnx --sparsity .5 --data x.npz": MADE_NODES,
    "compile functions.onnx": "expected at most 51008 nodes for the 63 of the graph, got ",
    "cache clean now": "got unexpected extra argument",
    "nothing": "no such command 'nothing'",
}
"""A command line -> what is said of it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    model = zoo.build("ffnn(depth=1,width=32,density=0.9)")
    zoo.save(model, folder / "m.onnx")
    content = (folder / "m.onnx").read_bytes()
    (folder / "functions.onnx").write_bytes(functions(31, 2).SerializeToString())
    np.savez(folder / "x.npz", x=np.zeros((8, 4), np.float32))
    (folder / "folder").mkdir()
    (folder / "empty.onnx").touch()
    (folder / "text.onnx").write_text("hello world\n")
    (folder / "half.onnx").write_bytes(content[: len(content) // 2])
    (folder / "cut.onnx").write_bytes(content[:-3])
    for name in ("lost", "short"):
        zoo.save(model, folder / f"{name}.onnx", external_data=True)
    (folder / "lost.onnx.data").unlink()
    (folder / "short.onnx.data").write_bytes(bytes(40))
    return folder


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REDPEBBLE_CACHE", str(folder.with_name("cache")))


def refused(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command line; return the one line that it says before it ends with 2, having written nothing."""
    before = {path.name for path in Path().iterdir()}
    assert exit_code(monkeypatch, *words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert {path.name for path in Path().iterdir()} == before
    (line,) = captured.err.splitlines()
    return line


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_that_makes_no_sense_is_refused_in_one_line(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(line.split(), monkeypatch, capsys).startswith(f"error: {LINES[line]}")


TAKE_FOLDERS = ("optimize", "bench", "explain")
"""Commands that take folders of onnxruntime-genai, too."""


@pytest.mark.parametrize("command", MODEL_COMMANDS)
def test_what_is_no_model_is_refused_by_every_command_in_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, message in BROKEN.items():
        # a folder may be one of onnxruntime-genai
        without = " without genai_config.json" * (command in TAKE_FOLDERS and message.endswith("is a directory"))
        expected = f"error: {message}{without}"
        assert refused([command, name, *MODEL_COMMANDS[command]], monkeypatch, capsys) == expected


def test_a_compiled_network_says_why_it_is_not_pickled(tmp_path: Path) -> None:
    import pickle

    with pytest.raises(TypeError, match="a compiled network cannot be pickled: compile the model in each process"):
        pickle.dumps(redpebble.compile("m.onnx", cache=tmp_path / "cache"))
    with pytest.raises(ValueError, match=r"expected a file to write that ends in \.onnx, got o\.txt"):
        redpebble.optimize("m.onnx").save("o.txt")


@pytest.mark.parametrize("command", ["check", "bench"])
def test_a_model_that_asks_for_more_memory_than_there_is_is_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("redpebble.tools.main.available_memory", lambda: 1 << 29)
    size = 1 << 31
    nodes = "w = Expand(x, t) o = ReduceSum<keepdims = 0>(w) y = Add(x, o)"
    Path("vast.onnx").write_bytes(folded(nodes, t=np.array([size // 16, 1, 1])).SerializeToString())
    before = resource.getrlimit(resource.RLIMIT_DATA)
    assert exit_code(monkeypatch, command, "vast.onnx", "--batch", "1") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: onnxruntime: Expand node '' asks for {size} bytes at once, more than there are"
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize("way", ["session", "provider"])
def test_what_onnxruntime_refuses_is_one_line_of_each_engine(
    way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wide.onnx").write_bytes(sparse([4, 1 << 40], [0, 1]).SerializeToString())
    assert exit_code(monkeypatch, "bench", "wide.onnx", "--against", way) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: onnxruntime: ")
