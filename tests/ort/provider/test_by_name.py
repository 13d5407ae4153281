"""The provider by its name, and programs whose sessions it gets without being named."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import redpebble
from redpebble.ort.native.ep_library import EP_NAME
from redpebble.ort.provider import preferred, register
from redpebble.ort.provider.preferred import with_ours
from redpebble.ort.session_arguments import Providers
from tests.ort.provider_models import MLP, assert_equal_runs, feeds, model, plain_session

CPU, CUDA, AZURE = "CPUExecutionProvider", "CUDAExecutionProvider", "AzureExecutionProvider"

SCRIPT = """
import sys, numpy, onnxruntime as ort
from onnxruntime import InferenceSession
x = numpy.load(sys.argv[2])
for providers in None, ["CPUExecutionProvider"], ort.get_available_providers():
    session = InferenceSession(sys.argv[1], providers=providers)
    print(__name__, session.get_providers()[0])
numpy.save(sys.argv[3], session.run(None, {"x": x})[0])
"""


def test_a_session_takes_the_provider_by_its_name() -> None:
    redpebble.register()
    assert EP_NAME in onnxruntime.get_available_providers()
    proto = model(MLP)
    ours = onnxruntime.InferenceSession(proto.SerializeToString(), providers=[EP_NAME])
    assert ours.get_providers() == [EP_NAME, CPU]
    assert register.host().network_count == 1
    assert_equal_runs(ours, plain_session(proto), feeds(7))


def test_ours_is_first_where_no_other_provider_was_chosen() -> None:
    assert with_ours(None, None) == ([EP_NAME, CPU], None)
    assert with_ours([AZURE, CPU, EP_NAME], None) == ([EP_NAME, AZURE, CPU], None)
    assert with_ours([(CPU, {"a": "b"})], None) == ([EP_NAME, (CPU, {"a": "b"})], None)
    assert with_ours([CPU], [{"a": "b"}]) == ([EP_NAME, CPU], [{}, {"a": "b"}])
    assert with_ours([CPU, (EP_NAME, {"trust_code": "1"})], None) == ([(EP_NAME, {"trust_code": "1"}), CPU], None)
    assert with_ours([CPU, EP_NAME], [{"a": "b"}, {}]) == ([EP_NAME, CPU], [{}, {"a": "b"}])
    several: list[Providers] = [[CUDA], [CUDA, CPU], [(CUDA, {}), EP_NAME]]
    for chosen in several:
        assert with_ours(chosen, None) == (chosen, None)


@pytest.mark.parametrize("as_module", [False, True])
def test_a_program_that_does_not_know_us_runs_our_code(tmp_path: Path, as_module: bool) -> None:
    proto, inputs = model(MLP), feeds(7)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    (tmp_path / "program.py").write_text(SCRIPT)
    np.save(tmp_path / "x.npy", inputs["x"])
    words = ["-m", "program"] if as_module else [str(tmp_path / "program.py")]
    shown = subprocess.run(
        [sys.executable, "-m", "redpebble.onnxruntime", *words, "m.onnx", "x.npy", "y.npy"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.splitlines() == [f"__main__ {EP_NAME}"] * 3
    expected = plain_session(proto).run(None, inputs)[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "expected python -m redpebble.onnxruntime SCRIPT.py ARGUMENTS ..., or -m MODULE ARGUMENTS ..."),
        (["nope.py"], "script 'nope.py': expected a file, got none of that name"),
        (["-m"], "expected python -m redpebble.onnxruntime SCRIPT.py ARGUMENTS ..., or -m MODULE ARGUMENTS ..."),
    ],
)
def test_a_wrong_command_is_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        preferred.run(words)
    assert left.value.code == 2
    assert capsys.readouterr().err == f"redpebble.onnxruntime: {line}\n"


def test_an_older_onnxruntime_says_that_it_takes_no_names(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, provider: None
) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", "1.24.4")
    with pytest.raises(ValueError, match=r"expected 1\.26 or newer, which takes providers by name, got 1\.24\.4"):
        preferred.prefer()
    redpebble.unregister()
    redpebble.register()
    assert "onnxruntime 1.24.4 takes RedpebbleExecutionProvider by add_provider_for_devices" in caplog.text
