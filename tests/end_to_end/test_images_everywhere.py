"""Pruned convolutions wherever linear layers are: library, provider, compile, bench, check, explain."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import redpebble
from redpebble.ort.provider.register import host, register
from tests.end_to_end.test_image_sizes import any_size, images
from tests.ort.deployed_models import options
from tests.ort.deployed_models import session as deployed_session
from tests.ort.provider_models import plain_session, provider_session
from tests.support.command_line import exit_code
from tests.support.image_models import ImageModel


@pytest.fixture(scope="module")
def small() -> tuple[ImageModel, onnx.ModelProto]:
    """A convolution that is taken, and one of another kind of windows behind it."""
    net = ImageModel((64, 14, 14), density=0.05)
    hidden = net.node("Relu", net.conv("x", (64, 64, 3, 3), pads=[1, 1, 1, 1]))
    return net, net.model(net.node("Relu", net.conv(hidden, (64, 64, 1, 1), strides=[2, 2])))


def assert_same(ours: onnxruntime.InferenceSession, plain: onnxruntime.InferenceSession, net: ImageModel) -> None:
    for batch in (0, 1, 7):
        feeds = net.images(batch)
        for found, wanted in zip(ours.run(None, feeds), plain.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_library_built_ahead_runs_convolutions(
    small: tuple[ImageModel, onnx.ModelProto], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, model = small
    source, output = tmp_path / "cnn.onnx", tmp_path / "fast.onnx"
    source.write_bytes(model.SerializeToString())
    assert not exit_code(monkeypatch, "optimize", source, output, "--library")
    written = onnx.ModelProto.FromString(output.read_bytes())
    assert_same(deployed_session(written, output.with_suffix(".so")), plain_session(model), net)


@pytest.mark.usefixtures("provider")
def test_the_provider_takes_convolutions(small: tuple[ImageModel, onnx.ModelProto]) -> None:
    net, model = small
    ours = provider_session(model)
    assert host().network_count == 1
    assert_same(ours, plain_session(model), net)


@pytest.mark.usefixtures("provider")
def test_the_provider_says_that_images_of_any_size_stay(capfd: pytest.CaptureFixture[str]) -> None:
    model = any_size()
    made = options()
    made.log_severity_level = 2
    made.add_provider_for_devices(register(), {})
    ours, feeds = onnxruntime.InferenceSession(model.SerializeToString(), made), images(1, 9, 7)
    assert host().network_count == 0
    for found, wanted in zip(ours.run(None, feeds), plain_session(model).run(None, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted)
    line = "images of any size; `redpebble optimize --size height=N --size width=N` states one, redpebble.session takes"
    assert capfd.readouterr().err.count(line) == 1


def test_commands_take_convolutions(
    small: tuple[ImageModel, onnx.ModelProto],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, report = tmp_path / "cnn.onnx", tmp_path / "report.json"
    source.write_bytes(small[1].SerializeToString())
    assert not exit_code(monkeypatch, "check", source, "--batch", 1, "--atol", 1e-3)
    assert not exit_code(monkeypatch, "compile", source)
    against = "onnxruntime,provider"
    arguments = ("--against", against, "--batch", 1, "--seconds", 0.02, "--report", report)
    assert not exit_code(monkeypatch, "bench", source, *arguments)
    text = report.read_text()
    assert all(engine in text for engine in ("native", *against.split(",")))
    assert not exit_code(monkeypatch, "explain", source, "--seconds", 0, "--report", report)
    layers = {layer["name"]: layer for layer in json.loads(report.read_text())["layers"]}
    assert layers["/conv0"]["inputs"] == 576
    assert layers["/conv0"]["measured_us"]["64"] > 0
    assert "2 convolutions, of which a pixel is a row of a linear layer" in capsys.readouterr().out.replace("\n", " ")


def test_compile_takes_images_of_a_stated_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "any.onnx"
    source.write_bytes(any_size(8).SerializeToString())
    assert exit_code(monkeypatch, "compile", source) == 2
    assert "; --size height=N --size width=N states them" in capsys.readouterr().err
    assert not exit_code(monkeypatch, "compile", source, "--size", "height=9", "--size", "width=7")
    assert redpebble.compile(any_size(8), sizes={"height": 9, "width": 7}).report[1].inputs == 72
