"""Kernels and passes that a person has chosen: what runs is what was chosen, and it computes what onnxruntime does."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from xdsl.utils.exceptions import PassFailedException

import redpebble
from redpebble.export.sparse_networks.node_content import written
from redpebble.foundation.choices import NO_CHOICES, Choices
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.models import zoo
from redpebble.ort.network_code import compile_network
from redpebble.runtime.jit import host_target
from redpebble.verification.oracle import Oracle
from tests.support.quantized_models import quantized_images

ONE_ROW = "permute_lookup" if host_target().lanes == 16 else "gathered_panels"
MIXED = f"{ONE_ROW} from 1, count_blocks from 8"
FIRST, SECOND = "/layers.0/Gemm", "/layers.1/Gemm"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("choices") / "mlp.onnx"
    zoo.save(zoo.build("ffnn(depth=2, width=72, density=0.1)"), path)
    return path


def reference(model: Path, batch: int) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.float32]]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    values = np.random.default_rng(batch).standard_normal((batch, 72))
    feeds = {str(entry.name): values.astype(np.float32)}
    return feeds, session.run(None, feeds)[0]


@pytest.mark.parametrize("kernel", ["dense_outputs", "narrow_blocks from 1, sparse_rows from 32", MIXED])
def test_native_code_runs_the_kernel_that_was_chosen(model: Path, kernel: str) -> None:
    net = redpebble.compile(model, cache=False, choices=Choices(kernels=((SECOND, kernel),)))
    kernels = {layer.name: layer for layer in net.report}
    assert kernels[SECOND].kernel == kernel
    assert kernels[SECOND].reason == "asked for"
    assert kernels[FIRST].reason != "asked for"
    for batch in (0, 1, 7, 17, 64, 100):
        feeds, expected = reference(model, batch)
        np.testing.assert_allclose(net.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-5)


def test_a_session_and_a_file_run_the_kernel_that_was_chosen(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "choices.json"
    path.write_text(Choices(("pebble-reorder-neurons",), ((FIRST, MIXED),)).text)
    optimized = redpebble.optimize(model, choices=path)
    assert {layer.name: layer.kernel for layer in optimized.report}[FIRST] == MIXED
    nodes = [written(node) for node in optimized.model.graph if node.domain == "ai.redpebble"]
    layers = [layer for node in nodes for layer in compile_network(*node).program.report]
    assert [layer.kernel for layer in layers if layer.reason == "asked for"] == [MIXED]
    session = redpebble.session(model, choices=path)
    for batch in (1, 7, 17):
        feeds, expected = reference(model, batch)
        np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-5)


def test_a_file_whose_kernel_another_cpu_lacks_is_compiled_there_as_priced(model: Path) -> None:
    optimized = redpebble.optimize(model, choices=Choices(kernels=((FIRST, MIXED),)))
    (node,) = (written(node) for node in optimized.model.graph if node.domain == "ai.redpebble")
    report = compile_network(*node, CpuTarget.generic()).program.report
    assert report
    assert all(layer.kernel for layer in report)


def sparse_convolution() -> onnx.ModelProto:
    weight = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype(np.float32)
    weight[np.random.default_rng(1).random(weight.shape) < 0.9] = 0
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[N, 8, 12, 12] x) => (float[N, 16, 12, 12] y)'
        " { y = Conv<pads = [1, 1, 1, 1]>(x, w) }"
    )
    graph.graph.node[0].name = "conv"
    graph.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return graph


def test_a_convolution_has_the_kernel_that_was_chosen(tmp_path: Path) -> None:
    path = tmp_path / "conv.onnx"
    path.write_bytes(sparse_convolution().SerializeToString())
    for kernel in ("dense_outputs", "count_blocks"):
        net = redpebble.compile(path, cache=False, choices=Choices(kernels=(("conv", kernel),)))
        assert [layer.kernel for layer in net.report] == [kernel]
        x = np.random.default_rng(2).standard_normal((3, 8, 12, 12)).astype(np.float32)
        expected = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
        np.testing.assert_allclose(net.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", ["byte_lookup", "byte_lookup from 1, byte_windows from 16, byte_shared_4 from 40"])
def test_layers_on_codes_that_are_done_together_have_the_kernel_that_was_chosen(kernel: str) -> None:
    digits = zoo.build("digits_int8")
    oracle = Oracle(digits, exact=True)
    choices = Choices(kernels=((SECOND, kernel),))
    net = redpebble.compile(digits, cache=False, choices=choices)
    assert {layer.kernel for layer in net.report} == {kernel.replace(" from 1,", ",")}
    assert {layer.reason for layer in net.report} == {"asked for"}
    for batch in (0, 1, 7, 17, 64, 100):
        x = np.random.default_rng(batch).random((batch, 64), dtype=np.float32)
        expected = oracle.run({"x": x})[0]
        np.testing.assert_array_equal(net.run(None, {"x": x})[0], expected)


@pytest.mark.parametrize("kernel", ["byte_scattered", "byte_shared_2", "byte_shared_4"])
def test_a_convolution_of_codes_has_the_kernel_that_was_chosen(tmp_path: Path, kernel: str) -> None:
    model = quantized_images(sparse_convolution(), tmp_path, "qdq", "QUInt8")
    oracle = Oracle(ir.from_proto(model), exact=True)
    (name,) = (layer.name for layer in redpebble.compile(model, cache=False).report)
    net = redpebble.compile(model, cache=False, choices=Choices(kernels=((name, kernel),)))
    assert [layer.kernel for layer in net.report] == [kernel]
    for images in (1, 3):
        x = np.random.default_rng(2).standard_normal((images, 8, 12, 12)).astype(np.float32)
        np.testing.assert_array_equal(net.run(None, {"x": x})[0], oracle.run({"x": x})[0])


@pytest.mark.parametrize(
    ("kernels", "told"),
    [
        ({SECOND: "strips"}, f"layer {SECOND}: expected one of byte_lookup for tiles of 1, got strips"),
        (
            {SECOND: "byte_lookup from 1, byte_quads from 8"},
            "expected one of byte_lookup.* for tiles of 8, got byte_q",
        ),
        ({SECOND: "byte_lookup from 1, byte_quads from 40, byte_lookup from 64"}, "for tiles of 40, got byte_quads"),
        ({FIRST: "byte_lookup", SECOND: "byte_lookup from 1, byte_quads from 64"}, f"expected the kernel of {FIRST}"),
    ],
)
def test_kernels_that_layers_on_codes_cannot_have_are_refused(kernels: dict[str, str], told: str) -> None:
    with pytest.raises(PassFailedException, match=told):
        redpebble.compile(zoo.build("digits_int8"), cache=False, choices=Choices(kernels=tuple(kernels.items())))


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        (Choices(kernels=(("nope", "strips"),)), "expected names of layers with a choice such as .*, got 'nope'"),
        (Choices(("pebble-nothing",)), "pass: expected one of .*, got 'pebble-nothing'"),
        (Choices(kernels=((FIRST, "strips"),)), f"layer {FIRST}: expected one of .* for tiles of 1, got strips"),
        (
            Choices(kernels=((FIRST, "strips from 8"),)),
            f"layer {FIRST}: expected a kernel such as .*, got 'strips from",
        ),
        (Choices(kernels=((FIRST, "a from 1 b"),)), f"layer {FIRST}: expected a kernel such as .*, got 'a from 1 b'"),
    ],
)
def test_what_nothing_can_have_is_refused(model: Path, choices: Choices, told: str) -> None:
    with pytest.raises((ValueError, PassFailedException), match=told):
        redpebble.compile(model, cache=False, choices=choices)
    with pytest.raises((ValueError, PassFailedException), match=told):
        redpebble.optimize(model, choices=choices)
    with pytest.raises((ValueError, PassFailedException), match=told):
        redpebble.session(model, choices=choices)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "7",
        "{}",
        '{"format": "another", "skip_passes": [], "kernels": {}}',
        '{"format": "redpebble choices 1", "skip_passes": "a", "kernels": {}}',
        '{"format": "redpebble choices 1", "skip_passes": [], "kernels": {"a": 1}}',
        '{"format": "redpebble choices 1", "skip_passes": [], "kernels": []}',
        "[" * 100_000,
    ],
)
def test_a_file_with_something_else_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"c.json: expected choices of redpebble explain --serve, got another file"):
        Choices.read(path)


def test_choices_read_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    choices = Choices(("pebble-sparsify",), (("a=b,c", MIXED), ("", "strips")))
    path.write_text(choices.text)
    assert Choices.read(path) == choices
    assert Choices.read(None) == NO_CHOICES
