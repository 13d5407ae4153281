"""A session whose kept file is of no use optimizes the model anew, and runs the model itself where that is of none."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import redpebble
from redpebble.export import save_model as saving
from redpebble.frontend.reading.model_source import read_model
from redpebble.lowering.calls.network_table import SAME_NUMBERS, ParameterNumbers, SplitCosts
from redpebble.lowering.program import Program
from redpebble.models.zoo import build
from redpebble.ort import network_code
from redpebble.runtime.loaded_network import LoadedNetwork
from redpebble.runtime.store.checked_file import keep, recalled
from redpebble.verification.oracle import Oracle

OURS = "SparseNetwork_0"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, with a cache of its own."""
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    saving.save_model(build("ffnn(depth=2, width=200, density=0.1)"), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def kept_file(model: Path) -> Path:
    (kept,) = (model.parent / "cache").rglob("*.onnx")
    return kept


def nodes_of_session(model: Path) -> set[str]:
    """Return the operators of a session's nodes; its outputs are right."""
    options, loaded = onnxruntime.SessionOptions(), model.with_name("loaded.onnx")
    options.optimized_model_filepath, options.log_severity_level = str(loaded), 4
    session = redpebble.session(model, options)
    x = np.random.default_rng(0).standard_normal((7, 200)).astype(np.float32)
    (expected,) = Oracle(read_model(model)).session.run(None, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)
    return {node.op_type for node in onnx.ModelProto.FromString(loaded.read_bytes()).graph.node}


def test_a_kept_file_that_onnxruntime_does_not_take_is_made_anew(model: Path) -> None:
    assert nodes_of_session(model) == {OURS}
    good = recalled(kept_file(model))
    keep(kept_file(model), b"no model")
    assert nodes_of_session(model) == {OURS}
    assert recalled(kept_file(model)) == good


def test_a_kept_file_of_which_a_network_is_given_up_is_made_anew(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert nodes_of_session(model) == {OURS}
    before, calls, load_network = kept_file(model).stat().st_ino, list[None](), network_code.load_network

    def failing_once(
        program: Program, image: bytes, costs: SplitCosts, numbers: ParameterNumbers = SAME_NUMBERS
    ) -> LoadedNetwork:
        calls.append(None)
        if len(calls) == 1:
            raise ValueError("not this time")
        return load_network(program, image, costs, numbers)

    monkeypatch.setattr(network_code, "load_network", failing_once)
    assert nodes_of_session(model) == {OURS}
    assert len(calls) == 2
    assert kept_file(model).stat().st_ino != before
    assert "not this time" not in caplog.text


def test_the_model_itself_runs_where_no_optimized_one_is_taken(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def damaged(_: ir.Model) -> bytes:
        return b"no model"

    monkeypatch.setattr(saving, "model_bytes", damaged)
    # the first session has just made it, the second one finds it in the cache
    for _ in range(2):
        caplog.clear()
        assert OURS not in nodes_of_session(model)
        assert "the original model runs, since onnxruntime refuses the optimized one: " in caplog.text
