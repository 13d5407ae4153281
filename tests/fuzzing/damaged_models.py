"""Damaged model files through the command line: what can be read is right, the rest is one line and exit code 2."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir

from redpebble.models import zoo
from redpebble.tools.main import main
from tests.end_to_end.malformed_models import external, model
from tests.fuzzing.damage import damaged_bytes, damaged_model
from tests.fuzzing.fuzzer import GIBIBYTE, Fuzzer, one_of
from tests.fuzzing.random_models import drawn_model
from tests.fuzzing.rewrapped_graphs import rewrapped
from tests.support.sparse_network_models import with_networks

COMMANDS = ("optimize", "optimize --target ort", "check", "compile", "explain", "check")

ERRORS = "stderr.txt"


def random_model(rng: np.random.Generator) -> onnx.ModelProto:
    """A random graph with functions, branches and loops."""
    made = onnx.ModelProto.FromString(drawn_model(int(rng.integers(1 << 30))).proto.SerializeToString())
    rewrapped(made, rng)
    return made


def optimized(rng: np.random.Generator) -> onnx.ModelProto:
    """A random graph with nodes of ours."""
    return onnx_ir.to_proto(with_networks(drawn_model(int(rng.integers(1 << 30))).proto))


def from_the_zoo(rng: np.random.Generator) -> onnx.ModelProto:
    """A small network of the zoo."""
    return onnx_ir.to_proto(
        zoo.build(one_of(rng, ("ffnn(depth=2, width=24, density=0.3)", "resmlp(depth=1, width=32)")))
    )


SOURCES: tuple[Callable[[np.random.Generator], onnx.ModelProto], ...] = (
    lambda _: model(),
    lambda _: external("weights.bin"),
    random_model,
    random_model,
    optimized,
    from_the_zoo,
)


def draw(seed: int, folder: Path) -> None:
    """A damaged model, a file of weights beside it, and a command."""
    rng = np.random.default_rng(seed)
    content, how = damaged_model(one_of(rng, SOURCES)(rng).SerializeToString(), rng)
    (folder / "model.onnx").write_bytes(content)
    weights = np.linspace(-1, 1, 12, dtype=np.float32).tobytes()
    (folder / "weights.bin").write_bytes(damaged_bytes(weights, rng) if rng.random() < 0.3 else weights)
    (folder / "settings.json").write_text(json.dumps({"command": one_of(rng, COMMANDS), "how": how}))


def check(folder: Path) -> str:
    """The command does it, or says in one line why not."""
    command, *options = json.loads((folder / "settings.json").read_text())["command"].split()
    words = [command, str(folder / "model.onnx"), *options]
    if command in ("optimize", "compile"):
        words += [str(folder / "out")] if command == "optimize" else ["-o", str(folder / "out")]
    code, error = ended(words, folder)
    if code == 0:
        assert "Traceback" not in error, error
        return f"{command} done"
    assert code == 2, f"{command} ended with {code}: {error[-200:]}"
    assert error.startswith("error: "), error[-200:]
    assert error.count("\n") == 1, f"not one line: {error[-200:]}"
    assert not (folder / "out").exists(), "something was left behind"
    return f"{command} refused"


def ended(words: list[str], folder: Path) -> tuple[int, str]:
    """The exit code of a command, and what it wrote to standard error, libraries of C++ included."""
    errors, before = os.open(folder / ERRORS, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), os.dup(2)
    sys.argv = ["redpebble", *words]
    code: object = None
    try:
        sys.stderr.flush()
        os.dup2(errors, 2)
        main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
    text = (folder / ERRORS).read_text(errors="replace")
    return (0 if code is None else code if isinstance(code, int) else 1), text


MODELS = Fuzzer("damaged-models", draw, check, memory=6 * GIBIBYTE)
