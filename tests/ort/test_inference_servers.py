"""The model repository of docs/servers.md, loaded as Triton's backend for onnxruntime does it, without redpebble."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import redpebble
from redpebble.models import zoo
from redpebble.ort.session import write_library

PAGE = Path(__file__).parents[2] / "docs" / "servers.md"

BACKEND = """
import json, re, sys
sys.modules["redpebble"] = None  # to import it fails
import numpy as np, onnxruntime
folder = sys.argv[1]
config = open(f"{folder}/config.pbtxt").read()
def texts(name):
    return re.findall(rf'{name}: *\\\\[? *"([^"]+)"', config)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(texts("string_value")[0])
for library in texts("op_library_filename"):
    options.register_custom_ops_library(library)
options.enable_profiling = True
options.profile_file_prefix = f"{folder}/profile"
session = onnxruntime.InferenceSession(f"{folder}/1/model.onnx", options, providers=["CPUExecutionProvider"])
ends = [*session.get_inputs(), *session.get_outputs()]
name = config.partition("input [")[2]
named = re.findall(r'name: "(\\\\w+)" data_type: (\\\\w+) dims: \\\\[ (\\\\d+) \\\\]', name)
# the free first axis is the batch, which the server adds
assert [(end.name, "TYPE_FP32", str(end.shape[1])) for end in ends] == named, (named, [end.shape for end in ends])
assert all(not isinstance(end.shape[0], int) and end.type == "tensor(float)" for end in ends)
feeds = np.load(f"{folder}/feeds.npz")
np.savez(f"{folder}/results.npz", **{batch: session.run(None, {"x": feeds[batch]})[0] for batch in feeds})
ran = {event.get("args", {}).get("op_name", "") for event in json.load(open(session.end_profiling()))}
assert any(op.startswith("SparseNetwork") for op in ran), ran
assert not any(module.startswith("redpebble.") for module in sys.modules)
"""


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return found


def repository(folder: Path) -> Path:
    """Return the folder of the model in a repository as the page shows it."""
    model = zoo.build("ffnn(depth=2, width=64, density=0.1)")
    model.graph.inputs[0].name, model.graph.outputs[0].name = "x", "y"
    zoo.save(model, folder / "original.onnx")
    (folder / "mlp" / "1").mkdir(parents=True)
    optimized = redpebble.optimize(folder / "original.onnx")
    optimized.save(folder / "mlp" / "1" / "model.onnx")
    write_library(optimized.model, folder / "mlp" / "1" / "model.so")
    config = block("protobuf").replace("/models/", f"{folder}/")
    (folder / "mlp" / "config.pbtxt").write_text(config)
    return folder / "mlp"


@pytest.mark.slow
def test_the_backend_of_a_server_runs_our_code_without_redpebble(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    rng = np.random.default_rng(0)
    feeds = {str(batch): rng.standard_normal((batch, 64)).astype(np.float32) for batch in (0, 1, 7, 17, 64)}
    np.savez(folder / "feeds.npz", allow_pickle=False, **feeds)
    subprocess.run([sys.executable, "-c", BACKEND.replace("\\\\", "\\"), str(folder)], check=True, timeout=120)
    session = onnxruntime.InferenceSession(tmp_path / "original.onnx", providers=["CPUExecutionProvider"])
    results = np.load(folder / "results.npz")
    for batch, x in feeds.items():
        expected = np.asarray(session.run(None, {"x": x})[0])
        np.testing.assert_allclose(results[batch], expected, rtol=1e-4, atol=1e-5)


def test_the_layout_of_the_page_is_the_one_that_is_tested() -> None:
    layout = block("text")
    assert all(name in layout for name in ("mlp/", "config.pbtxt", "1/", "model.onnx", "model.so"))
    assert "storageUri" in block("yaml")
