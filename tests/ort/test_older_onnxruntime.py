"""One library for all versions of onnxruntime from 1.17 on, each in an environment of its own."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.ort.deployed_models import ahead_of_time, assert_right, feeds, model
from tests.support.environments import interpreter_with

RUN = """
import sys, numpy, onnxruntime
folder, with_library = sys.argv[1], sys.argv[2] == "yes"
options = onnxruntime.SessionOptions()
if with_library:
    options.register_custom_ops_library(folder + "/model.so")
session = onnxruntime.InferenceSession(folder + "/model.onnx", options)
h, y = session.run(None, dict(numpy.load(folder + "/feeds.npz")))
numpy.savez(folder + "/results.npz", h=h, y=y)
try:
    session.run(None, {"x": numpy.zeros((2, 25), numpy.float32), "r": numpy.zeros((2, 17), numpy.float32)})
except Exception as error:
    print(error)
print("onnxruntime", onnxruntime.__version__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.17.3", "1.20.1", "1.23.2"])
def test_the_library_runs_in_an_older_onnxruntime(tmp_path: Path, version: str) -> None:
    python = interpreter_with(tmp_path, f"onnxruntime=={version}", "numpy<2")
    proto = model()
    proto.ir_version = 8
    for opset in (proto.opset_import[0], proto.functions[0].opset_import[0]):
        opset.version = 18
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    (tmp_path / "model.so").write_bytes(ahead_of_time())
    for batch in (0, 1, 17):
        inputs = feeds(batch)
        np.savez(tmp_path / "feeds.npz", x=inputs["x"], r=inputs["r"])
        for with_library in ("yes", "no"):
            words = [python, "-c", RUN, tmp_path, with_library]
            shown = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
            assert f"onnxruntime {version}" in shown
            assert ("input 0: expected size 24 along axis 1, got 25" in shown) == (with_library == "yes")
            results = np.load(tmp_path / "results.npz")
            assert_right([results["h"], results["y"]], inputs)
