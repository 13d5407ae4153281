"""Levels of lowering: one for each pass that changes a number, in the order of the pipeline, down to what runs."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from redpebble.models import zoo
from redpebble.options import Options
from redpebble.pipeline import PIPELINE
from redpebble.tools.explain.lowering_levels import AROUND, BATCHES, Level, lowering_of
from tests.support.command_line import exit_code


@pytest.fixture(scope="module")
def levels() -> tuple[Level, ...]:
    return lowering_of(zoo.build("ffnn(depth=3, width=64, density=0.1)"), Options()).levels


def test_levels_stand_in_the_order_of_the_pipeline(levels: tuple[Level, ...]) -> None:
    order = ["import", *(stage.name for stage in PIPELINE)]
    places = [order.index(level.stage) for level in levels]
    assert places == sorted(places)
    assert [level.name for level in levels][:2] == ["import", "fuse layers"]
    assert {"sparsify", "form tiles"} <= {level.name for level in levels}
    assert all(level.what for level in levels)


@pytest.mark.parametrize("batch", BATCHES)
def test_less_is_moved_at_every_level_and_takes_less_time_at_last(levels: tuple[Level, ...], batch: int) -> None:
    totals = [level.total(batch) for level in levels]
    moved = [total.moved_bytes for total in totals]
    assert moved == sorted(moved, reverse=True)
    assert totals[-1].predicted_us < totals[0].predicted_us
    assert totals[0].cached_bytes == 0 < totals[-1].cached_bytes


def test_tiles_take_time_beside_their_layers_from_the_level_on_that_forms_them(levels: tuple[Level, ...]) -> None:
    (formed,) = (at for at, level in enumerate(levels) if level.name == "form tiles")
    around = [{one.kind: one for one in level.kinds[64]}[AROUND].predicted_us for level in levels[formed:]]
    assert around[0] == pytest.approx(around[-1], rel=0.01)
    assert around[0] > 1


def test_what_onnxruntime_keeps_is_told_and_its_networks_run_in_tiles() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> agraph (float[N, 64] x) => (float[N, 64] y) {
        h = MatMul (x, w) c = CumSum (h, axis) y = MatMul (c, w) }"""
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)) * (rng.random((64, 64)) < 0.05)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight.astype(np.float32), "w"))
    model.graph.initializer.append(onnx.helper.make_tensor("axis", onnx.TensorProto.INT64, [], [1]))
    lowering = lowering_of(model, Options())
    assert lowering.placement is not None
    assert lowering.levels[-1].name == "form sparse networks and tiles"
    assert {*lowering.rows[64].values()} == {64}
    assert not lowering.left


PARTLY_DENSE = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[N, 64] x) => (float[N, 64] y)
{
    [sparse] h = MatMul (x, w)
    c = CumSum (h, axis)
    [dense] y = MatMul (c, v)
}
"""


@pytest.fixture
def partly_dense() -> onnx.ModelProto:
    model, rng = onnx.parser.parse_model(PARTLY_DENSE), np.random.default_rng(0)
    for name, density in (("w", 0.05), ("v", 1.0)):
        weight = rng.standard_normal((64, 64)) * (rng.random((64, 64)) < density)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight.astype(np.float32), name))
    model.graph.initializer.append(onnx.helper.make_tensor("axis", onnx.TensorProto.INT64, [], [1]))
    return model


def test_dense_layers_that_onnxruntime_keeps_are_known_by_name(partly_dense: onnx.ModelProto) -> None:
    assert lowering_of(partly_dense, Options()).left == {"dense"}


@pytest.mark.slow
def test_layers_that_onnxruntime_keeps_bound_nothing_on_the_page(
    partly_dense: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.onnx").write_bytes(partly_dense.SerializeToString())
    report = tmp_path / "page.html"
    assert exit_code(monkeypatch, "explain", tmp_path / "model.onnx", "--seconds", 0, "--report", report) == 0
    text = report.read_text()
    assert "sparse takes 100 % of the time of the linear layers that are taken." in text
    assert "Not shown, as onnxruntime keeps them: dense." in text


def test_convolutions_that_compile_takes_have_their_work_and_time_at_every_level() -> None:
    lowering = lowering_of(zoo.build("digits_cnn"), Options())
    assert lowering.placement is None
    first, last = ({one.kind: one for one in lowering.levels[place].kinds[1]}["conv2d"] for place in (0, -1))
    # windows of the seven convolutions, two operations for each weight and pixel
    assert first.operations == 2 * sum(
        (9 * 32 * 64, 288 * 64 * 64, 576 * 64 * 64, 576 * 64 * 64, 576 * 128 * 16, 128 * 128 * 16, 1152 * 128 * 16)
    )
    assert 8 * last.operations < first.operations
    assert 0 < 2 * last.predicted_us < first.predicted_us
    assert lowering.rows[1]["/layers.1/Conv"] == 64
