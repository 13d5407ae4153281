import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

import redpebble
from redpebble.frontend.reading.axis_names import Axes
from redpebble.frontend.reading.free_axes import axes_in_question, dims_of, state_sizes
from redpebble.frontend.reading.model_source import read_model
from redpebble.ort.sized_session import SizedSession
from tests.ort.provider_models import plain_session
from tests.support.command_line import exit_code
from tests.support.image_models import ImageModel
from tests.support.sparse_network_models import network_nodes

Shape = tuple[int, int, int]
"""Batch, height and width."""


def any_size(channels: int = 64) -> onnx.ModelProto:
    """A network that runs on images of any size: the classifier reads the mean of all pixels."""
    net = ImageModel((3, 1, 1), density=1.0)
    x = net.node("Relu", net.conv("x", (channels, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    net.density = 0.05
    for _ in range(3):
        x = net.node("Relu", net.conv(x, (channels, channels, 3, 3), pads=[1, 1, 1, 1]))
    model = net.model(net.node("GlobalAveragePool", x), x)
    for name, dim in zip(("height", "width"), model.graph.input[0].type.tensor_type.shape.dim[2:], strict=True):
        dim.dim_param = name
    return model


def images(batch: int, height: int, width: int) -> dict[str, np.ndarray]:
    values = np.random.default_rng(batch).standard_normal((batch, 3, height, width))
    return {"x": values.astype(np.float32)}


def image_axes(model: onnx_ir.Model) -> Axes:
    return axes_in_question(dims_of(model)).images


def sized(model: onnx.ModelProto | Path) -> SizedSession:
    session = redpebble.session(model)
    assert isinstance(session, SizedSession)
    return session


def assert_right(ours: onnxruntime.InferenceSession, plain: onnxruntime.InferenceSession, *shapes: Shape) -> None:
    for shape in shapes:
        feeds = images(*shape)
        for found, wanted in zip(ours.run(None, feeds), plain.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_session_makes_code_for_each_size_in_the_background() -> None:
    model = any_size()
    ours, plain = sized(model), plain_session(model, 1)
    assert [value.shape for value in ours.get_inputs()] == [["batch", 3, "height", "width"]]
    shapes = ((1, 24, 30), (2, 31, 17), (3, 24, 30), (0, 24, 30))
    for _ in range(2):
        assert_right(ours, plain, *shapes)
        ours.code.wait()
    assert ours.code.ready_sizes() == [{"height": 31, "width": 17}, {"height": 24, "width": 30}]
    with pytest.raises(Exception, match="Invalid rank"):
        ours.run(None, {"x": np.zeros((1, 3), np.float32)})


def least_seconds(session: onnxruntime.InferenceSession, shape: Shape, calls: int) -> float:
    feeds, times = images(*shape), list[float]()
    for _ in range(calls):
        begun = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - begun)
    return min(times)


@pytest.mark.slow
def test_no_call_compiles_where_each_has_a_width_of_its_own() -> None:
    """A recogniser of text gets lines of any width: onnxruntime serves them, nothing compiles in this process."""
    model = any_size(16)
    ours, plain = sized(model), plain_session(model, 1)
    before = redpebble.counters()
    slowest = 0.0
    for width in range(20, 40):
        assert_right(ours, plain, (1, 24, width))
        slowest = max(slowest, least_seconds(ours, (1, 24, width), 1) / least_seconds(plain, (1, 24, width), 5))
    print(f"slowest call: {slowest:.1f}x the time of onnxruntime")
    ours.code.wait()
    after = redpebble.counters()
    assert after["models_optimized"] == before["models_optimized"]
    assert after["networks_compiled"] == before["networks_compiled"]
    assert 1 <= len(ours.code.ready_sizes()) <= 20


@pytest.mark.slow
def test_calls_of_several_threads_wait_for_no_code() -> None:
    model = any_size()
    ours, plain = sized(model), plain_session(model, 1)
    shapes: list[Shape] = [(1, 24, 30), (2, 31, 17), (1, 9, 9)]

    def calls(first: int) -> None:
        for number in range(60):
            assert_right(ours, plain, shapes[(first + number) % 3])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(calls, range(3)))
        ours.code.wait()
        list(pool.map(calls, range(3)))
    assert len(ours.code.ready_sizes()) == 3


def test_sizes_are_prepared_before_the_first_call() -> None:
    model = any_size()
    sizes = [{"height": 24, "width": 30}, {"width": 17, "height": 31}]
    ours = redpebble.session(model, sizes=sizes)
    assert isinstance(ours, SizedSession)
    assert ours.code.ready_sizes() == sizes
    assert_right(ours, plain_session(model, 1), (1, 24, 30), (2, 31, 17))
    with pytest.raises(ValueError, match=r"expected the size of a free axis \(batch, height, width\), got 'depth'"):
        redpebble.session(model, sizes=[{"depth": 3}])
    with pytest.raises(ValueError, match="expected the sizes of height, width, got none of width"):
        redpebble.session(model, sizes=[{"height": 3}])


def test_sizes_stay_with_onnxruntime_where_the_file_has_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, model = tmp_path / "any.onnx", any_size(16)
    path.write_bytes(model.SerializeToString())
    ours, plain = sized(path), plain_session(model, 1)
    path.write_bytes(any_size(24).SerializeToString())
    for _ in range(2):
        assert_right(ours, plain, (1, 24, 30))
        ours.code.wait()
    assert not ours.code.ready_sizes()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    why = "the file of the model has changed since the session was made"
    assert lines == [f"inputs of height=24, width=30 stay with onnxruntime: {why}"]


def test_code_is_made_in_this_process_where_none_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    model = any_size(24)
    ours, plain = sized(model), plain_session(model, 1)
    for _ in range(2):
        assert_right(ours, plain, (1, 24, 30))
        ours.code.wait()
    assert len(ours.code.ready_sizes()) == 1


@pytest.mark.slow
def test_a_process_ends_with_code_in_the_making(tmp_path: Path) -> None:
    path = tmp_path / "any.onnx"
    path.write_bytes(any_size(40).SerializeToString())
    program = f"""
import numpy, redpebble
session = redpebble.session({str(path)!r})
session.run(None, {{"x": numpy.zeros((1, 3, 24, 30), numpy.float32)}})
print(len(session.code.ready_sizes()))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")


def test_a_session_for_images_of_any_size_has_the_arguments_of_its_caller(tmp_path: Path) -> None:
    domains: list[bool] = []
    for disabled in ([], ["NchwcTransformer"]):
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
        session = redpebble.session(any_size(), options, disabled_optimizers=disabled)
        assert isinstance(session, SizedSession)
        nodes = onnx.ModelProto.FromString((tmp_path / "loaded.onnx").read_bytes()).graph.node
        domains.append("com.microsoft.nchwc" in {node.domain for node in nodes})
    assert domains == [True, False]


def test_a_compiled_network_makes_code_for_each_size_when_it_comes() -> None:
    model = any_size(8)
    network, plain = redpebble.compile(model), plain_session(model, 1)
    assert [arg.shape for arg in network.get_inputs()] == [["batch", 3, "height", "width"]]
    assert [arg.name for arg in network.get_outputs()] == [value.name for value in model.graph.output]
    for shape in ((1, 9, 7), (2, 6, 11)):
        feeds = images(*shape)
        expected = plain.run(None, feeds)
        for results in (network.run(None, feeds), network(feeds["x"])):
            for found, wanted in zip(results, expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert len(network.report) == 4
    with pytest.raises(ValueError, match=r"expected inputs x \['batch', 3, 'height', 'width'\], got x \[1, 3\]"):
        network.run(None, {"x": np.zeros((1, 3), np.float32)})


def test_a_compiled_network_makes_code_for_axes_that_softmax_and_signals_need() -> None:
    """A free axis is normalised, another one is padded: neither is an image."""
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        weights (float[batch,heads,length] x, float[batch,time] signal) => (float[batch,heads,length] y, float[] z)
        <int64[4] pads = {0, 3, 0, 2}>
        { y = Softmax(x)  a = Pad<mode = "reflect">(signal, pads)  z = Relu(a) }
    """
    model = onnx.parser.parse_model(text)
    model.graph.output[1].type.tensor_type.ClearField("shape")
    network, plain, rng = redpebble.compile(model), plain_session(model, 1), np.random.default_rng(0)
    for batch, length, time_steps in ((1, 5, 9), (0, 5, 9), (3, 5, 9), (2, 17, 4)):
        x = rng.standard_normal((batch, 3, length)).astype(np.float32)
        feeds = {"x": x, "signal": rng.standard_normal((batch, time_steps)).astype(np.float32)}
        for found, wanted in zip(network.run(None, feeds), plain.run(None, feeds), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("word", ["?", "None", "-1", ""])
def test_words_that_stand_for_an_unknown_size_are_no_names(word: str) -> None:
    """Paddle calls the batch -1 and both sizes of an image `?`: they need not be equal."""
    model = any_size(8)
    batch, _, *sizes = model.graph.input[0].type.tensor_type.shape.dim
    batch.dim_value = -1
    for dim in sizes:
        dim.dim_param = word
    assert image_axes(read_model(model)) == {"x": ("", "", "x.2", "x.3")}
    network, plain = redpebble.compile(model), plain_session(model, 1)
    assert [arg.shape for arg in network.get_inputs()] == [["x.0", 3, "x.2", "x.3"]]
    for shape in ((1, 9, 7), (2, 6, 11)):
        for found, wanted in zip(network.run(None, images(*shape)), plain.run(None, images(*shape)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_session_makes_code_for_images_whose_sizes_are_below_0() -> None:
    model = any_size()
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = -1
    ours = redpebble.session(model, sizes=[{"x.2": 24, "x.3": 30}])
    assert isinstance(ours, SizedSession)
    assert_right(ours, plain_session(model, 1), (1, 24, 30))


def test_a_model_with_stated_sizes_has_sparse_convolutions() -> None:
    model = any_size()
    assert not redpebble.optimize(model).networks
    optimized = redpebble.optimize(model, sizes={"height": 32, "width": 48})
    assert len(network_nodes(onnx_ir.to_proto(optimized.model))) == 1
    with pytest.raises(ValueError, match=r"expected the size of a free axis \(batch, height, width\), got 'depth'"):
        redpebble.optimize(model, sizes={"depth": 32})
    with pytest.raises(ValueError, match="size height: expected 1 or more, got 0"):
        redpebble.compile(model, sizes={"height": 0})


def test_shapes_that_depend_on_a_stated_size_are_left_open() -> None:
    model = onnx_ir.from_proto(any_size(8))
    value = model.graph.node(0).outputs[0]
    value.shape = onnx_ir.Shape(["batch", 8, "(height + 1) // 2", "width"])
    assert image_axes(model) == {"x": ("", "", "height", "width")}
    state_sizes(model, {"height": 5})
    assert value.shape is None
    assert image_axes(model) == {"x": ("", "", "", "width")}


def test_the_command_line_states_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = tmp_path / "any.onnx", tmp_path / "sized.onnx"
    source.write_bytes(any_size().SerializeToString())
    sizes = ["--size", "height=32", "--size", "width=24"]
    assert not exit_code(monkeypatch, "optimize", source, output, *sizes, "--check", 1, "--batch", 1, "--atol", 1e-3)
    written = read_model(output, any_version=True)
    assert [list(value.shape or ())[2:] for value in written.graph.inputs] == [[32, 24]]
    assert len(network_nodes(onnx_ir.to_proto(written))) == 1


def test_explain_shows_convolutions_of_a_stated_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "any.onnx"
    source.write_bytes(any_size().SerializeToString())
    sizes = ["--size", "height=32", "--size", "width=24"]
    report = tmp_path / "any.html"
    assert not exit_code(monkeypatch, "explain", source, *sizes, "--seconds", 0, "--report", report)
    assert "any.onnx" in report.read_text(encoding="utf-8")
    assert "4 convolutions, of which a pixel is a row" in capsys.readouterr().out.replace("\n", " ")
    assert exit_code(monkeypatch, "explain", source, "--size", "depth=32", "--seconds", 0) == 2
