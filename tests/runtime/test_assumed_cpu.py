"""Code for a CPU that can do less than this machine's, to test it here."""

import json
from pathlib import Path

import numpy as np
import pytest

import redpebble
from redpebble.driver.compiler import native_code
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.models import zoo
from redpebble.runtime.jit import assumed_cpu, host_target, this_cpu
from redpebble.verification.oracle import Oracle
from tests.support.command_line import exit_code


@pytest.fixture
def model(tmp_path: Path) -> Path:
    zoo.save(zoo.build("ffnn(depth=2, width=64, density=0.1)"), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("target", [CpuTarget.generic(), CpuTarget.avx2()])
def test_compiled_code_and_sessions_are_for_the_assumed_cpu(target: CpuTarget, model: Path) -> None:
    if not target.extensions <= this_cpu().extensions:
        pytest.skip("this machine cannot run such code")
    x = np.random.default_rng(0).standard_normal((7, 64), dtype=np.float32)
    (expected,) = Oracle(model).run({"x": x})
    with assumed_cpu(target):
        network, session = redpebble.compile(model, cache=False), redpebble.session(str(model))
        assert native_code(model, cache=False).program.target == host_target() == target
        (from_network,), (from_session,) = network.run(None, {"x": x}), session.run(None, {"x": x})
    assert host_target() == this_cpu()
    np.testing.assert_allclose(from_network, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(from_session, expected, rtol=1e-4, atol=1e-5)


def test_a_cpu_that_this_machine_cannot_stand_for_is_refused() -> None:
    target = CpuTarget("x86-64", "+teleport", 8)
    with (
        pytest.raises(ValueError, match=r"^expected a CPU with teleport, got \S+, which has not$"),
        assumed_cpu(target),
    ):
        raise AssertionError
    assert host_target() == this_cpu()


@pytest.mark.parametrize("command", ["check", "optimize"])
def test_commands_take_a_level(
    command: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"check": ("--batch", 3), "optimize": (model.with_name("o.onnx"), "--check", 1)}[command]
    assert exit_code(monkeypatch, command, model, *words, "--cpu", "generic") == 0
    assert host_target() == this_cpu()
    capsys.readouterr()
    assert exit_code(monkeypatch, command, model, *words, "--cpu", "sse9") == 2
    assert "'sse9' is not one of 'host', 'generic', 'avx2'" in capsys.readouterr().err


def test_a_benchmark_says_what_its_code_is_for(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--batch", "3", "--seconds", "0", "--callers", "0", "--cpu", "generic")
    assert exit_code(monkeypatch, "bench", model, *words, "--json") == 0
    assert json.loads(capsys.readouterr().out)["machine"]["vector_floats"] == 4
