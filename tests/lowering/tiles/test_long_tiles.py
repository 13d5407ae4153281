"""Tiles of many ops: their code is cut into functions, and computes the same."""

import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.lowering.tiles.tile_loop import MOST_PIECES
from redpebble.options import Options
from redpebble.pipeline import build

COUNT = 2 * MOST_PIECES + 3


def _chain(operators: str) -> onnx.ModelProto:
    """Return a layer and so many ops behind it, each of the one before."""
    text = "".join(f"v{i + 1} = {operators.split()[i % 2]} (v{i})\n" for i in range(COUNT))
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, 24] x) => (float[n, 24] v{COUNT})'
        f"<float[24, 24] w> {{ v0 = MatMul (x, w)\n {text} }}"
    )
    random = np.random.default_rng(3)
    weight = (random.standard_normal((24, 24)) * (random.random((24, 24)) < 0.2)).astype(np.float32)
    model.graph.ClearField("initializer")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


def _expected(model: onnx.ModelProto, x: NDArray[np.float32]) -> NDArray[np.float64]:
    value = x.astype(np.float64) @ onnx.numpy_helper.to_array(model.graph.initializer[0]).astype(np.float64)
    for i in range(COUNT):
        value = 1 / (1 + np.exp(-value)) if i % 2 else np.tanh(value)
    return value


def test_no_function_of_a_long_tile_has_more_than_so_many_calls() -> None:
    program = lower(build(_chain("Tanh Sigmoid"), Options()), CpuTarget.avx2())
    functions = [text.partition("\n}")[0] for text in program.llvm_ir.split("define internal void ")]
    calls = {text.split("(")[0]: text.count("call void") for text in functions if text.startswith('@"tile')}
    assert sum("part" in name for name in calls) >= 3
    assert max(calls.values()) <= MOST_PIECES
    assert sum(calls.values()) >= COUNT


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:threads is")
def test_long_tiles_compute_the_same(threads: int) -> None:
    model = _chain("Tanh Sigmoid")
    network = redpebble.compile(model, threads=threads, cache=False)
    for rows in (1, 3, 40):
        x = np.random.default_rng(rows).standard_normal((rows, 24)).astype(np.float32)
        np.testing.assert_allclose(network.run(None, {"x": x})[0], _expected(model, x), rtol=0, atol=2e-6)
