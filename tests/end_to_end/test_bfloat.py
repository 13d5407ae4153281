"""Layers that compute with bfloat16: chosen where a CPU gains, written in standard operators, and within a bound."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import redpebble
from redpebble.driver.compiler import Optimized, native_build, optimized
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.options import Options
from redpebble.runtime.jit import host_target
from redpebble.tools.main import app
from redpebble.tuning.measure_kernels import Tuning
from tests.support.emulated_bfloat import emulated
from tests.support.image_models import ImageModel
from tests.support.quantized_models import pruned_network

Floats = NDArray[np.float32]

needs_bfloat = pytest.mark.skipif(not host_target().has_bfloat, reason="needs avx512_bf16")

SIZES = [200, 333, 129]


def rounded(values: NDArray[np.floating]) -> NDArray[np.float64]:
    return values.astype(ml_dtypes.bfloat16).astype(np.float64)


def by_numpy(model: onnx.ModelProto, x: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what rounded layers compute, and by how much each result may differ.

    A sum in another order may turn a value that is about in the middle of two numbers of bfloat16 to the other one.
    """
    arrays = {one.name: numpy_helper.to_array(one).astype(np.float32) for one in model.graph.initializer}
    value, slack = x.astype(np.float64), np.zeros(x.shape)
    for index in range(len(SIZES) - 1):
        weight, bias = arrays[f"w{index}"], arrays[f"b{index}"]
        value = rounded(value.astype(np.float32))
        step = np.abs(value) * 2.0**-8 if index else 0.0
        slack = (slack + step) @ np.abs(weight) + (np.abs(value) @ np.abs(weight) + np.abs(bias) + 1) * 2.0**-14
        value = value @ rounded(weight) + bias
        value = np.maximum(value, 0) if index + 2 < len(SIZES) else value
    return value, slack


@pytest.fixture(scope="module", name="result")
def result_of_optimize() -> Optimized:
    x = np.random.default_rng(0).standard_normal((50, SIZES[0]), dtype=np.float32)
    return redpebble.optimize(pruned_network(SIZES, 0.1), precision="bf16", samples={"x": x})


@needs_bfloat
def test_layers_are_rounded_and_say_what_results_change_by(result: Optimized) -> None:
    some, share = result.quantized.removesuffix("%").rsplit(" ", 1)
    assert some == "2 of 2 sparse layers compute with bfloat16, results change by"
    assert 0.1 < float(share) < 1
    assert [layer.format for layer in result.report] == ["bf16", "bf16"]


@needs_bfloat
@pytest.mark.parametrize("batch", [0, 1, 7, 17, 128])
def test_code_of_the_result_is_within_a_bound_of_what_numpy_rounds(result: Optimized, batch: int) -> None:
    model = pruned_network(SIZES, 0.1)
    x = np.random.default_rng(batch).standard_normal((batch, SIZES[0]), dtype=np.float32)
    expected, slack = by_numpy(model, x)
    content = result.proto.SerializeToString()
    plain = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for run in (plain.run, redpebble.compile(content).run, redpebble.session(content).run):
        (y,) = run(None, {"x": x})
        # rows that fill no tile of 32 stay floats: they miss what rounding changes
        exact = slack + (batch % 64 > 0) * np.abs(expected).max(initial=0) * 2.0**-4
        assert np.all(np.abs(y - expected) <= exact)


@needs_bfloat
def test_any_number_of_threads_computes_the_same_bits() -> None:
    model, rng = pruned_network([700, 900], 0.2), np.random.default_rng(2)
    # the second half of the outputs is far sparser: alone it would have larger blocks of inputs
    weight = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[:, 450:] *= rng.random((700, 450)) < 0.1
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w0"))
    content = redpebble.optimize(model, precision="bf16").proto.SerializeToString()
    x = rng.standard_normal((64, 700), dtype=np.float32)
    one, two = (redpebble.compile(content, threads=threads, cache=False) for threads in (1, 2))
    assert {"bfloat_pairs"} & {name for layer in two.report for name in layer.families.values()}
    assert np.array_equal(one.run(None, {"x": x})[0], two.run(None, {"x": x})[0])


@needs_bfloat
def test_code_for_other_cpus_computes_with_floats(result: Optimized) -> None:
    x = np.random.default_rng(1).standard_normal((64, SIZES[0]), dtype=np.float32)
    content = result.proto.SerializeToString()
    expected, other = (
        redpebble.compile(content, target=target).run(None, {"x": x})[0] for target in (None, CpuTarget.avx2())
    )
    assert 0 < np.abs(expected - other).max() < 0.05
    network = redpebble.compile(content, target=CpuTarget.avx2())
    assert not {"bfloat_pairs"} & {name for layer in network.report for name in layer.families.values()}


def test_cpus_without_the_instructions_are_named() -> None:
    options = Options("optimize", bfloat=True, tuning=Tuning.predicted(CpuTarget.avx2(), None))
    result = optimized(pruned_network(SIZES, 0.1), options)
    assert result.quantized.startswith("0 of ")
    assert result.quantized.endswith("; this CPU has no instructions for it (avx512_bf16, or bf16 on ARM)")
    assert [layer.format for layer in result.report] == ["csc", "csc"]


def test_an_opset_without_bfloat16_is_named() -> None:
    model = pruned_network(SIZES, 0.1)
    model.opset_import[0].version = 12
    result = redpebble.optimize(model, precision="bf16")
    assert result.quantized == "0 of 2 sparse layers compute with bfloat16; it needs opset 13, the model's is 12"


@needs_bfloat
def test_a_layer_that_gains_nothing_is_named() -> None:
    result = redpebble.optimize(pruned_network(SIZES, 0.1), precision="bf16", rows=1)
    assert result.quantized.startswith("0 of 2 sparse layers compute with bfloat16; fc0 (200 -> 333) would take 1.00 ")


@needs_bfloat
def test_the_command_needs_no_samples(tmp_path: Path) -> None:
    path, output = tmp_path / "model.onnx", tmp_path / "out.onnx"
    path.write_bytes(pruned_network(SIZES, 0.1).SerializeToString())
    done = CliRunner().invoke(app, ["optimize", str(path), str(output), "--precision", "bf16"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "2 of 2 sparse layers compute with bfloat16\n" in done.output
    written = onnx.ModelProto.FromString(output.read_bytes())
    casts = [node for function in written.functions for node in function.node if node.op_type == "Cast"]
    assert sum(node.attribute[0].i == onnx.TensorProto.BFLOAT16 for node in casts) == 2


@pytest.mark.parametrize(("precision", "samples"), [("fp8", False), ("int8", False), ("f32", True)])
def test_a_precision_that_does_not_fit_is_refused(precision: str, samples: bool) -> None:
    x = {"x": np.zeros((2, 8), np.float32)} if samples else None
    with pytest.raises(ValueError, match=f"precision.*{precision}"):
        redpebble.optimize(pruned_network([8, 8], 0.1), precision=precision, samples=x)  # pyright: ignore[reportArgumentType]


def network_of_images() -> ImageModel:
    """Return a pointwise convolution, one of stride 2, and one of 3 x 3 with a residual; all read x."""
    net = ImageModel((96, 13, 13), density=0.15)
    net.node("Relu", net.conv("x", (160, 96, 1, 1)))
    net.conv("x", (64, 96, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    net.node("Add", net.conv("x", (96, 96, 3, 3), pads=[1, 1, 1, 1]), "x")
    return net


def rounded_images(model: onnx.ModelProto, x: Floats) -> list[NDArray[np.float64]]:
    """Return what rounded convolutions compute, in double precision."""
    exact = onnx.ModelProto()
    exact.CopyFrom(model)
    for tensor in exact.graph.initializer:
        array = numpy_helper.to_array(tensor)
        array = rounded(array) if array.ndim > 1 else array.astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    evaluator = ReferenceEvaluator(exact)
    return evaluator.run(None, {"x": rounded(x)})  # pyright: ignore[reportReturnType, reportUnknownMemberType]


@pytest.mark.slow
def test_convolutions_are_rounded_where_the_cpu_has_its_products() -> None:
    net = network_of_images()
    model, tuning = net.model("relu1", "conv2", "add4"), Tuning.predicted(CpuTarget.zen4(), None)
    result = optimized(model, Options("optimize", bfloat=True, tuning=tuning, sparse_networks=True))
    assert result.quantized == "3 of 3 sparse layers compute with bfloat16"
    assert [layer.format for layer in result.report] == ["bf16"] * 3
    plain = onnxruntime.InferenceSession(result.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    here = redpebble.compile(result.proto, target=CpuTarget.avx2(), cache=False)
    there = emulated(native_build(result.proto, Options(tuning=tuning)).module)
    for batch in (0, 1, 3):
        x = net.images(batch)["x"]
        expected, residual = rounded_images(model, x), x - rounded(x)
        expected[2] = expected[2] + residual
        found = zip(plain.run(None, {"x": x}), there.run(None, {"x": x}), here.run(None, {"x": x}), strict=True)
        for exact, (standard, ours, floats) in zip(expected, found, strict=True):
            largest = np.abs(exact).max(initial=0)
            assert np.abs(standard - exact).max(initial=0) <= 1e-5 * largest
            assert np.abs(ours - exact).max(initial=0) <= 1e-5 * largest
            # code for other CPUs reads inputs as they are
            assert batch == 0 or 1e-4 * largest < np.abs(floats - exact).max() < 1e-2 * largest


def test_a_network_that_gains_by_rounding_alone_is_taken() -> None:
    net = ImageModel((256, 14, 14), density=0.4)
    net.node("Relu", net.conv("x", (256, 256, 1, 1)))
    tuning = Tuning.predicted(CpuTarget.zen4(), None)
    for bfloat in (False, True):
        options = Options("optimize", bfloat=bfloat, tuning=tuning, sparse_networks=True)
        result = optimized(net.model("relu1"), options)
        assert [node.op_type.startswith("SparseNetwork") for node in result.proto.graph.node] == (
            [True] if bfloat else [False, False]
        )


def test_convolutions_of_cpus_without_the_instructions_stay_floats() -> None:
    options = Options("optimize", bfloat=True, tuning=Tuning.predicted(CpuTarget.avx2(), None), sparse_networks=True)
    result = optimized(network_of_images().model("relu1", "conv2", "add4"), options)
    some, obstacle = result.quantized.split("; ")
    assert some == "0 of 3 sparse layers compute with bfloat16"
    assert obstacle == "this CPU has no instructions for it (avx512_bf16, or bf16 on ARM)"


ROUNDED_BY_HAND = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[n, 40] x) => (float[n, 30] y, float[n, 40] z) {
  a = Relu(x)
  c = Cast<to = 16>(a)
  r = Cast<to = 1>(c)
  y = MatMul(r, w)
  d = Cast<to = 16>(x)
  z = Cast<to = 1>(d)
}
"""


@pytest.mark.parametrize("has_more_bits", [False, True])
def test_casts_there_and_back_round_wherever_they_stand(has_more_bits: bool) -> None:
    model, rng = onnx.parser.parse_model(ROUNDED_BY_HAND), np.random.default_rng(0)
    weight = (rng.standard_normal((40, 30)) * (rng.random((40, 30)) < 0.2)).astype(np.float32)
    weight = weight if has_more_bits else rounded(weight).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    x = rng.standard_normal((9, 40), dtype=np.float32)
    x[0, 0] = np.nan
    y, z = redpebble.compile(model, target=CpuTarget.avx2(), cache=False).run(None, {"x": x})
    assert np.array_equal(z, rounded(x).astype(np.float32), equal_nan=True)
    exact = np.maximum(x, 0) if not has_more_bits else rounded(np.maximum(x, 0))
    np.testing.assert_allclose(y[1:], exact[1:] @ weight.astype(np.float64), rtol=1e-5, atol=1e-5)
