"""Damaged models and files beside them through the command line: done, or one line and exit code 2."""

import json
import os
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray

from redpebble.models import zoo
from redpebble.tools.main import main
from tests.end_to_end.malformed_models import external, model
from tests.fuzzing import random_layers
from tests.fuzzing.damage import damaged_bytes, damaged_model
from tests.fuzzing.fuzzer import GIBIBYTE, Fuzzer, one_of
from tests.fuzzing.random_models import drawn_model
from tests.fuzzing.rewrapped_graphs import rewrapped
from tests.support.sparse_network_models import with_networks

COMMANDS = (
    "optimize",
    "optimize --target ort",
    "optimize --precision int8",
    "check",
    "check",
    "compile",
    "explain",
    "prune --sparsity 0.5",
    "bench --seconds 0.01 --batch 1",
    "tune --seconds 0.1",
    "schedule --memory 20 --seconds 0.1",
    "partition -p 2",
)

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


def with_kernels_of_their_own(rng: np.random.Generator) -> onnx.ModelProto:
    """A network on images, of eight bits, or over edges."""
    draws = (random_layers.draw_images, random_layers.draw_quantized, random_layers.draw_aggregations)
    with TemporaryDirectory() as folder:
        one_of(rng, draws)(int(rng.integers(1 << 30)), Path(folder))
        return onnx.load_from_string((Path(folder) / "model.onnx").read_bytes())


SOURCES: tuple[Callable[[np.random.Generator], onnx.ModelProto], ...] = (
    lambda _: model(),
    lambda _: external("weights.bin"),
    random_model,
    random_model,
    optimized,
    from_the_zoo,
    from_the_zoo,
    with_kernels_of_their_own,
    with_kernels_of_their_own,
)


FILES = {
    "optimize": "{out}",
    "optimize --precision int8": "{out} --data {data}",
    "compile": "-o {out}",
    "prune": "{out} --data {data}",
    "schedule": "--save {out}",
    "partition": "-o {out}",
}
"""The files that a command writes, and reads beside the model."""


def draw(seed: int, folder: Path) -> None:
    """A damaged model or damaged samples of its inputs, a file of weights beside it, and a command."""
    rng = np.random.default_rng(seed)
    command, source = one_of(rng, COMMANDS), one_of(rng, SOURCES)(rng)
    content, samples = source.SerializeToString(), _samples(source, rng)
    if "--data" in FILES.get(command.partition(" --sp")[0], "") and rng.random() < 0.6:
        samples, how = damaged_bytes(samples, rng), "samples"
    else:
        content, how = damaged_model(content, rng)
    (folder / "model.onnx").write_bytes(content)
    (folder / "samples.npz").write_bytes(samples)
    weights = np.linspace(-1, 1, 12, dtype=np.float32).tobytes()
    (folder / "weights.bin").write_bytes(damaged_bytes(weights, rng) if rng.random() < 0.3 else weights)
    (folder / "settings.json").write_text(json.dumps({"command": command, "how": how}))


def _samples(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    """The content of a file with some inputs, of which some do not fit."""
    arrays = dict[str, NDArray[Any]]()
    for value in model.graph.input:
        sizes = [dim.dim_value if dim.HasField("dim_value") else 5 for dim in value.type.tensor_type.shape.dim]
        if rng.random() < 0.1:
            sizes = [*sizes, 2]
        array = rng.standard_normal(sizes) * one_of(rng, (1.0, 1.0, 1e30, np.nan, 0.0))
        arrays[value.name] = array.astype(one_of(rng, (np.float32,) * 5 + (np.float64, np.int64, np.bool_)))
    stream = BytesIO()
    one_of(rng, (np.savez, np.savez_compressed))(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def check(folder: Path) -> str:
    """The command does it, or says in one line why not."""
    os.environ["REDPEBBLE_CACHE"] = str((folder / "cache").absolute())  # what is measured of noise is not kept
    line, out = json.loads((folder / "settings.json").read_text())["command"], folder / "out.onnx"
    command, *options = line.split()
    files = FILES.get(line.partition(" --sp")[0], FILES.get(command, ""))
    words = [command, str(folder / "model.onnx"), *files.format(out=out, data=folder / "samples.npz").split()]
    code, error = ended([*words, *options], folder)
    if code == 0:
        assert "Traceback" not in error, error
        return f"{command} done"
    assert code == 2, f"{command} ended with {code}: {error[-200:]}"
    assert error.startswith("error: "), error[-200:]
    assert error.count("\n") == 1, f"not one line: {error[-200:]}"
    assert not out.exists(), "something was left behind"
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
