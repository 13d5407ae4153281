"""Networks of bytes and of bfloat16 in libraries made ahead of time: the same results at each level of CPU features."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from _pytest.mark import ParameterSet

import redpebble
from redpebble.driver.compiler import optimized
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.options import Options
from redpebble.ort.native.tables import LEVELS
from redpebble.ort.session import write_library
from redpebble.tuning.measure_kernels import Tuning
from tests.end_to_end.test_bfloat import SIZES, by_numpy
from tests.end_to_end.test_quantized import inputs, needs_vnni, outcome
from tests.end_to_end.test_quantized_convolutions import Network, images, residual, share_of_a_step
from tests.ort.deployed_models import has_level, limit_level, session
from tests.support.quantized_models import Form, dynamically_quantized, pruned_network, quantized, quantized_images

EVERY_NETWORK = ("generic", "avx2", "avx512")


class Deployed:
    """A model that was optimized, and its library; `levels` are those that it has code for."""

    def __init__(self, model: onnx_ir.Model, path: Path) -> None:
        self.proto, self.path = onnx_ir.to_proto(model), path
        self.levels = write_library(self.proto, path)

    def sessions(self) -> Mapping[str, onnxruntime.InferenceSession]:
        """Return a session for each level that this CPU has, of the code of that level."""
        made: dict[str, onnxruntime.InferenceSession] = {}
        for level in filter(has_level, self.levels):
            limit_level(self.path, level)
            made[level] = session(self.proto, self.path)
        return made


def deployed(model: onnx.ModelProto, folder: Path) -> Deployed:
    return Deployed(redpebble.optimize(model).model, folder / "model.so")


def slow(*arguments: object) -> ParameterSet:
    return pytest.param(*arguments, marks=pytest.mark.slow)


@needs_vnni
@pytest.mark.parametrize("form, activations", [("qdq", "QUInt8"), slow("qdq", "QInt8"), slow("operator", "QUInt8")])
def test_linear_layers_give_the_bytes_of_onnxruntime_at_each_level(
    form: Form, activations: str, tmp_path: Path
) -> None:
    model = quantized(pruned_network([70, 97, 20], 0.12), tmp_path, form, activations, "QInt8", per_channel=True)
    library = deployed(model, tmp_path)
    assert library.levels == LEVELS["x86_64"]
    for rows, (level, made) in product((1, 8, 70), library.sessions().items()):
        x = inputs(rows, 70)
        assert np.array_equal(made.run(None, {"x": x})[0], outcome(model, x)), level


@needs_vnni
@pytest.mark.slow
def test_scales_that_a_call_finds_give_the_bytes_of_a_session_at_each_level(tmp_path: Path) -> None:
    model = dynamically_quantized(pruned_network([70, 97, 20], 0.12), tmp_path, "QInt8")
    library, ours = deployed(model, tmp_path), redpebble.session(model)
    assert library.levels == LEVELS["x86_64"]
    for rows, (level, made) in product((1, 8, 70), library.sessions().items()):
        x = inputs(rows, 70)
        assert np.array_equal(made.run(None, {"x": x})[0], ours.run(None, {"x": x})[0]), level


@needs_vnni
@pytest.mark.parametrize("form", ["operator", slow("qdq")])
def test_convolutions_give_the_bytes_of_onnxruntime_at_each_level(form: Form, tmp_path: Path) -> None:
    net = Network()
    x = net.node("Relu", net.conv("x", (3, 64, 3)))
    model = quantized_images(net.model(net.conv(x, (64, 64, 3), 0.05), 12), tmp_path, form, "QUInt8", per_channel=True)
    library = deployed(model, tmp_path)
    assert library.levels == LEVELS["x86_64"]
    for samples, (level, made) in product((1, 3), library.sessions().items()):
        x = images(samples, 12)
        assert np.array_equal(made.run(None, {"x": x})[0], outcome(model, x)), level


@needs_vnni
@pytest.mark.slow
def test_a_residual_network_gives_the_bytes_of_a_session_at_each_level(tmp_path: Path) -> None:
    model = quantized_images(residual(), tmp_path, "qdq", "QUInt8", per_channel=True)
    library, ours = deployed(model, tmp_path), redpebble.session(model)
    for samples, (level, made) in product((1, 3), library.sessions().items()):
        x = images(samples)
        found = made.run(None, {"x": x})[0]
        assert np.array_equal(found, ours.run(None, {"x": x})[0]), level
        assert share_of_a_step(found, outcome(model, x)) < 0.02


@pytest.mark.slow
def test_bfloat16_is_rounded_where_the_cpu_has_its_products(tmp_path: Path) -> None:
    model, tuning = pruned_network(SIZES, 0.1), Tuning.predicted(CpuTarget.zen4(), None)
    result = optimized(model, Options("optimize", bfloat=True, tuning=tuning))
    assert result.quantized.startswith("2 of 2 sparse layers compute with bfloat16")
    library = Deployed(result.model, tmp_path / "model.so")
    assert library.levels == (*EVERY_NETWORK, "zen4")
    for batch, (level, made) in product((1, 17, 128), library.sessions().items()):
        x = np.random.default_rng(batch).standard_normal((batch, SIZES[0]), dtype=np.float32)
        expected, slack = by_numpy(model, x)
        difference = np.abs(made.run(None, {"x": x})[0] - expected)
        # what is not rounded misses what rounding changes
        bound = slack if level == "zen4" and batch % 64 == 0 else np.abs(expected).max() * 2.0**-4
        assert np.all(difference <= bound), level
