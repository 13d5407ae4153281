"""What `redpebble.optimize` returns: a model to save, to hand to `onnx` and to look at."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

import redpebble
from redpebble.driver import extraction
from redpebble.export import save_model
from redpebble.frontend.import_model import Imported
from redpebble.models.zoo import build, save
from redpebble.verification.oracle import Oracle

MODEL = "ffnn(depth=2,width=256,density=0.05)"


def feeds() -> dict[str, np.ndarray[tuple[int, int], np.dtype[np.float32]]]:
    return {"x": np.random.default_rng(0).standard_normal((3, 256), dtype=np.float32)}


def test_it_is_saved_and_handed_over_and_computes_the_same(tmp_path: Path) -> None:
    model = build(MODEL)
    expected = Oracle(model).run(feeds())[0]
    result = redpebble.optimize(model)
    result.save(tmp_path / "saved.onnx")
    onnx.save_model(result.proto, str(tmp_path / "handed.onnx"))  # pyright: ignore[reportUnknownMemberType]
    for name in ("saved.onnx", "handed.onnx"):
        session = onnxruntime.InferenceSession(str(tmp_path / name), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, feeds())[0], expected, rtol=1e-4, atol=1e-5)


def test_one_target_is_the_default_and_the_result_is_a_line() -> None:
    result = redpebble.optimize(build(MODEL))
    assert len(result.networks) == 1
    assert repr(result) == "<Optimized: 1 sparse network, 2 layers, 0 operators left as they are>"


def test_a_session_optimizes_a_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "model.onnx"
    save(build(MODEL), model)
    expected = Oracle(model).run(feeds())[0]
    with caplog.at_level(logging.INFO, logger="redpebble"):
        first = redpebble.session(model).run(None, feeds())[0]
        assert "the model is optimized once, for the cache" in caplog.text
        assert "taken: 2 of 2 layers, 100 % of the multiply-adds; optimized and compiled in " in caplog.text
        caplog.clear()
        second = redpebble.session(model).run(None, feeds())[0]
    assert "the model is optimized" not in caplog.text
    assert "; taken: 2 of 2 layers, 100 % of the multiply-adds" in caplog.text
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-5)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    (kept,) = (tmp_path / "cache").glob("*.onnx")
    kept.write_bytes(kept.read_bytes()[:-100])
    np.testing.assert_array_equal(redpebble.session(model).run(None, feeds())[0], first)


def no_message(model: onnx_ir.Model) -> None:
    """Stands for what is too large."""
    del model


def test_a_model_that_fits_into_no_message_is_optimized_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(save_model, "model_bytes", no_message)
    model = build(MODEL)
    np.testing.assert_allclose(
        redpebble.session(model).run(None, feeds())[0], Oracle(model).run(feeds())[0], rtol=1e-4, atol=1e-5
    )
    assert not [*(tmp_path / "cache").glob("*.onnx")]


class Sequential:
    """Stands where a module of torch would."""


Sequential.__module__ = "torch.nn.modules.container"


@pytest.mark.parametrize("call", [redpebble.compile, redpebble.optimize, redpebble.session])
def test_what_is_no_model_is_refused_in_one_line(call: Callable[[object], object]) -> None:
    expected = "expected a path, bytes, an onnx.ModelProto or an onnx_ir.Model"
    with pytest.raises(redpebble.InvalidModelError, match=rf"^{expected}, got None$"):
        call(None)
    with pytest.raises(
        redpebble.InvalidModelError, match=rf"^{expected}, got Sequential; torch\.onnx\.export\(.*\) makes one"
    ):
        call(Sequential())


def test_inputs_may_be_lists() -> None:
    net = redpebble.compile(build(MODEL), cache=False)
    x = feeds()["x"]
    np.testing.assert_array_equal(net.run(None, {"x": x.tolist()})[0], net.run(None, {"x": x})[0])
    with pytest.raises(ValueError, match=r"^input 'x' is no array: "):
        net.run(None, {"x": [[1.0], [1.0, 2.0]]})


def test_a_session_in_which_nothing_is_taken_says_so_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "model.onnx"
    save(build("ffnn(depth=1, width=48, density=1)"), model)
    told: list[str] = []
    for _ in range(2):
        with caplog.at_level(logging.INFO, logger="redpebble"):
            redpebble.session(model)
        told += [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert "optimized and compiled" not in caplog.text
        caplog.clear()
    assert (
        told
        == [
            "redpebble.session is as fast as onnxruntime here: all layers are dense, with 0 % zeros at most; "
            "redpebble prune makes more; see why-not-faster"
        ]
        * 2
    )


def test_a_model_in_which_nothing_gains_keeps_its_nodes() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[n,64] x) => (float[n,64] y) {
            a = SimplifiedLayerNormalization <axis: int = -1, epsilon: float = 0.00001> (x, g)
            b = MatMul (a, w)
            c = Sigmoid (b)
            y = Mul (b, c)
        }
    """)
    weight = np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
    constants = {"g": np.ones(64, np.float32), "w": weight}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    result = redpebble.optimize(proto)
    assert not result.networks
    assert not result.modified
    assert [node.op_type for node in result.model.graph] == [node.op_type for node in proto.graph.node]


SKIP_FUNCTION = """
    <opset_import: ["" : 23], domain: "com.microsoft">
    SkipSimplifiedLayerNormalization (x, t, g) => (y, mean, deviation, z) {
        z = Add (x, t)
        y = RMSNormalization (z, g)
        mean = Constant <value_float = 0.0> ()
        deviation = Constant <value_float = 0.0> ()
    }
"""


@pytest.mark.parametrize(("density", "has_function"), [(1.0, False), (0.05, False), (0.05, True)])
def test_a_normalized_sum_is_written_out_only_where_a_network_stands_beside_it(
    density: float, has_function: bool
) -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (float[n,64] x, float[n,64] t) => (float[n,64] y, float[n,64] z) {
            a, , , b = com.microsoft.SkipSimplifiedLayerNormalization (x, t, g)
            c = MatMul (a, w)
            y, , , z = com.microsoft.SkipSimplifiedLayerNormalization (b, c, g)
        }
    """)
    rng = np.random.default_rng(0)
    weight = np.where(rng.random((64, 64)) < density, rng.standard_normal((64, 64)), 0).astype(np.float32)
    for name, array in (("g", np.ones(64, np.float32)), ("w", weight)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    if has_function:
        # for runtimes without a kernel of the operator, as mobius writes it; onnxruntime calls its kernel
        proto.functions.append(onnx.parser.parse_function(SKIP_FUNCTION))
    result = redpebble.optimize(proto)
    operators = [node.op_type for node in result.model.graph]
    if density == 1.0:
        assert operators == [node.op_type for node in proto.graph.node]
        assert not result.modified
    else:
        assert operators == ["SparseNetwork_0"]


def test_neurons_that_nothing_needs_are_dropped_without_a_network() -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((64, 64), dtype=np.float32) for _ in range(2))
    second[:32] = 0
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[n,64] x) => (float[n,64] y) { a = MatMul (x, w) b = Relu (a) y = MatMul (b, v) }
    """)
    for name, array in (("w", first), ("v", second)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    result = redpebble.optimize(proto)
    assert not result.networks
    assert sum(layer.inputs * layer.outputs for layer in result.report) == 2 * 32 * 64
    assert result.proto.ByteSize() < 0.6 * proto.ByteSize()


def test_a_dense_convolution_before_all_sparse_ones_stays_in_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, nodes, weights = np.random.default_rng(0), list[onnx.NodeProto](), list[onnx.TensorProto]()
    for index in range(3):
        weight = rng.standard_normal((64, 64 if index else 8, 3, 3)).astype(np.float32)
        if index:
            weight[rng.random(weight.shape) < 0.9] = 0
        weights.append(onnx.numpy_helper.from_array(weight, f"w{index}"))
        nodes.append(onnx.helper.make_node("Conv", [f"x{index}", f"w{index}"], [f"c{index}"], pads=[1] * 4))
        nodes.append(onnx.helper.make_node("Relu", [f"c{index}"], [f"x{index + 1}"]))
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [1, size, 28, 28]) for name, size in (("x0", 8), ("x3", 64)))
    graph = onnx.helper.make_graph(nodes, "convolutions", [x], [y], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    readings, read = list[None](), extraction.import_model

    def counted(*given: object, **options: object) -> Imported:
        readings.append(None)
        return cast("Callable[..., Imported]", read)(*given, **options)

    monkeypatch.setattr(extraction, "import_model", counted)
    found = redpebble.optimize(model)
    assert len(readings) == 1
    assert [node.inputs[1].name for node in found.model.graph if node.op_type == "Conv" and node.inputs[1]] == ["w0"]
