"""Convolutions that gain by codes of eight bits: which ones follow the sparse ones beside them."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.dialect.ops.images import Depthwise2dOp
from redpebble.driver.compiler import optimized
from redpebble.kernels.machine import Machine
from redpebble.options import Options
from redpebble.passes.images.image_layers import is_sparse_convolution
from redpebble.pipeline import build
from redpebble.runtime.jit import host_target
from redpebble.tuning.gaining_convolutions import convolutions_of, gaining_convolutions
from redpebble.tuning.measure_kernels import Tuning
from tests.end_to_end.test_quantized import outcome

ZEN5, CASCADE_LAKE = Machine(prices="zen5"), Machine(prices="cascade_lake")


def mobile(side: int, channels: int, taps: int, *, density: float = 0.1, has_stem: bool = False) -> onnx.ModelProto:
    """A dense stem, a sparse convolution of points, a depthwise one, a sparse one of points."""
    rng, x = np.random.default_rng(3), "x"
    weights: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    shapes = [(channels, channels, 1), (channels, 1, taps), (channels, channels, 1)]
    shapes = [(channels, 3, 3), *shapes] if has_stem else shapes
    for index, (outputs, inputs, size) in enumerate(shapes):
        shape = (outputs, inputs, size, size)
        kept = rng.random(shape) < (density if size == 1 else 1)
        weight = rng.standard_normal(shape) * kept / np.sqrt(np.prod(shape[1:]) * (density if size == 1 else 1))
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{index}"))
        group = channels if inputs == 1 else 1
        nodes.append(
            helper.make_node(
                "Conv", [x, f"w{index}"], [f"a{index}"], pads=[size // 2] * 4, group=group, name=f"c{index}"
            )
        )
        nodes.append(helper.make_node("Relu", [f"a{index}"], [f"b{index}"]))
        x = f"b{index}"
    ends = (("x", 3 if has_stem else channels), (x, channels))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", count, side, side]) for name, count in ends]
    graph = helper.make_graph(nodes, "mobile", infos[:1], infos[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def chosen(model: onnx.ModelProto, machine: Machine) -> list[str]:
    found = convolutions_of(build(onnx_ir.from_proto(model), Options(), until="simplify"))
    kinds = {True: "sparse", False: "dense"}
    return [
        "depthwise" if isinstance(op, Depthwise2dOp) else kinds[is_sparse_convolution(op)]
        for op in gaining_convolutions(found, machine)
    ]


def test_depthwise_convolutions_among_sparse_ones_and_the_stem_before_them_gain() -> None:
    assert chosen(mobile(28, 64, 3, has_stem=True), ZEN5) == ["dense", "sparse", "depthwise", "sparse"]


def test_sparse_convolutions_stay_beside_a_depthwise_one_that_codes_make_slower() -> None:
    # few connections of points are no work, so that codes gain nothing beside the windows
    assert chosen(mobile(28, 64, 3, density=0.02), CASCADE_LAKE) == []


def test_dense_convolutions_alone_gain_nothing() -> None:
    assert chosen(mobile(28, 64, 3, density=1.0, has_stem=True), ZEN5) == []


def test_without_nodes_of_ours_sparse_convolutions_alone_are_looked_at() -> None:
    module = build(onnx_ir.from_proto(mobile(28, 64, 3, has_stem=True)), Options(), until="simplify")
    assert all(map(is_sparse_convolution, convolutions_of(module, takes_all=False)))
    assert len(convolutions_of(module)) == 4


@pytest.mark.parametrize("taps", [3, pytest.param(5, marks=pytest.mark.slow)])
def test_results_hardly_change_and_are_those_of_the_function_in_the_file(taps: int, tmp_path: Path) -> None:
    model = mobile(20, 64, taps, has_stem=True)
    x = np.random.default_rng(1).standard_normal((4, 3, 20, 20), dtype=np.float32)
    options = Options("optimize", samples={"x": x}, tuning=Tuning(host_target(), ZEN5, None, 0.0))
    result = optimized(model, options)
    assert result.quantized.startswith("2 of 2 sparse layers and 2 others compute with integers")
    result.save(tmp_path / "integers.onnx")
    written = onnx.load_from_string((tmp_path / "integers.onnx").read_bytes())
    floats, found = outcome(model, x), redpebble.session(tmp_path / "integers.onnx").run(None, {"x": x})[0]
    assert np.sqrt(np.mean(np.square(found - floats)) / np.mean(np.square(floats))) < 0.03
    if host_target().multiplies_bytes:  # else onnxruntime's own sums saturate
        assert np.abs(found - outcome(written, x)).max() < 0.01 * np.abs(floats).max()
