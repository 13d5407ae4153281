"""The planner and the simulator: what is chosen and why, and times that follow from rates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from typer.testing import CliRunner
from xdsl.dialects.builtin import ModuleOp

from redpebble.distributed.graph.ownership import Ownership
from redpebble.distributed.graph.row_graph import RowGraph
from redpebble.distributed.plans.cluster import Machine
from redpebble.distributed.plans.plans import (
    Ends,
    PlanRequest,
    SampleWork,
    Workload,
    bytes_text,
    exchanged_bytes,
    parse_bytes,
    plan,
    simulate,
    simulate_batch,
)
from redpebble.distributed.plans.scaling import predict_scaling, save_scaling_plot, scaling_lines
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.models.zoo import build, save
from redpebble.passes.analysis.partitioned_layers import module_traffic
from redpebble.pipeline import build as build_module
from redpebble.theory.partition.partition import LayerShare
from redpebble.tools.main import app


@pytest.fixture(scope="module")
def ffnn() -> ModuleOp:
    return build_module(build("ffnn(depth=3, width=96, density=0.1)"))


TRANSPOSING = """
<ir_version: 10, opset_import: ["" : 21]>
transposing (float[batch, 2, 3] x) => (float[batch, 3, 2] y)
<float[2, 2] w = {1.0, 0.0, 2.0, 3.0}>
{
    h = Transpose <perm = [0, 2, 1]> (x)
    y = MatMul (h, w)
}
"""


def own(part_count: int, kind: str = "auto", memory: int | None = None, batch: int = 1024) -> PlanRequest:
    return PlanRequest(part_count, kind, memory=memory, batch=batch)


def test_a_model_that_fits_is_split_by_its_batch(ffnn: ModuleOp) -> None:
    found = plan(ffnn, own(4))
    assert (found.kind, found.partition) == ("batch", None)
    assert [line.partition(":")[0] for line in found.lines] == ["batch", "rows", "layers", "chosen"]
    assert found.lines[-1] == "chosen: batch, the fastest"


@pytest.mark.slow
def test_a_model_that_does_not_fit_is_split_by_its_weights(ffnn: ModuleOp) -> None:
    rooms = {one.kind: one.memory for one in plan(ffnn, own(8, batch=1)).candidates}
    assert rooms["rows"] < rooms["batch"]
    found = plan(ffnn, own(8, memory=max(rooms["rows"], rooms["layers"]), batch=1))
    assert found.kind in ("rows", "layers")
    assert found.partition is not None
    assert "that fits into" in found.lines[-1]
    with pytest.raises(ValueError, match=r"no plan fits into 9 bytes a machine, \w+ on 8 needs .* KiB"):
        plan(ffnn, own(8, memory=9, batch=1))


@pytest.mark.slow
def test_a_single_sample_on_a_fast_wire_is_split_by_rows() -> None:
    module = build_module(build("ffnn(depth=2, width=512, density=0.1)"))
    wire = Machine(latency=1e-7, bandwidth=1e11, message_seconds=1e-8, copied_bytes=1e11)
    request = PlanRequest(4, batch=1, machine=wire)
    assert plan(module, request).kind == "rows"


@pytest.mark.parametrize("kind", ["rows", "layers"])
def test_the_planner_counts_the_volume_that_the_maps_send(ffnn: ModuleOp, kind: str) -> None:
    found = plan(ffnn, own(3, kind))
    assert found.lines[-1] == f"chosen: {kind}, as asked"
    assert found.partition is not None
    volume = sum(one.volume for one in module_traffic(ffnn, found.partition)) if kind == "rows" else None
    if volume is not None:
        assert f"{volume:,} values of a sample" in found.lines[0]
        assert volume == Ownership.of(RowGraph.of(ffnn), found.partition).volume


def test_a_model_that_mixes_rows_can_only_be_split_by_its_batch() -> None:
    module = build_module(onnx.parser.parse_model(TRANSPOSING))
    found = plan(module, own(2))
    assert found.kind == "batch"
    assert found.lines[-1] == "chosen: batch, the only one possible"
    assert "mixes rows" in found.lines[1]
    with pytest.raises(UnsupportedModelError, match="mixes rows"):
        plan(module, own(2, "rows"))


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="plan: expected one of auto, batch, rows, layers, nodes, got 'columns'"):
        PlanRequest(2, "columns")
    with pytest.raises(ValueError, match="expected a memory of 1 byte or more a machine, got 0"):
        PlanRequest(2, memory=0)
    with pytest.raises(ValueError, match="expected a batch of 1 sample or more, got 0"):
        PlanRequest(2, batch=0)
    with pytest.raises(ValueError, match="latency of a machine: expected a positive number, got -1"):
        Machine(latency=-1)


@pytest.mark.parametrize(
    ("text", "count"), [("65536", 65536), ("512MiB", 512 << 20), ("1.5 GB", 3 << 29), ("2K", 2048), ("7 bytes", 7)]
)
def test_bytes_are_read(text: str, count: int) -> None:
    assert parse_bytes(text) == count


def test_bytes_are_written_for_a_person_and_others_refused() -> None:
    assert [bytes_text(count) for count in (9, 2048, 3 << 19, 5 << 30)] == ["9 bytes", "2.0 KiB", "1.5 MiB", "5.0 GiB"]
    with pytest.raises(ValueError, match="expected bytes such as 65536, 512MiB or 4GiB, got 'much'"):
        parse_bytes("much")


MACHINE = Machine(latency=0.5, bandwidth=16.0, message_seconds=0.25, copied_bytes=32.0, products=8.0)


def share(sent: list[list[int]], connections: list[int], local: list[int]) -> LayerShare:
    return LayerShare(*(np.array(array, dtype=np.int64) for array in (sent, connections, local)))


def test_one_part_takes_the_time_of_its_products() -> None:
    layers = [share([[0]], [40], [40]), share([[0]], [24], [24])]
    for batch, tile in ((1, 1), (6, 2), (7, 7)):
        assert simulate(layers, MACHINE, Workload(batch, tile)).seconds == pytest.approx(64 * batch / 8)
    assert simulate_batch(SampleWork(64, 0), 1, MACHINE, 3).seconds == pytest.approx(24)
    assert simulate_batch(SampleWork(64, 0), 2, MACHINE, 3).seconds == pytest.approx(16)


def test_inputs_and_outputs_are_transposed_by_those_who_own_them() -> None:
    machine = replace(MACHINE, transposed_bytes=4.0)
    layer = share([[0, 0], [0, 0]], [8, 8], [8, 8])
    ends = Ends(np.array([1, 3]), np.array([5, 1]))
    plain = simulate([layer], machine, Workload(1, 1)).seconds
    assert simulate([layer], machine, Workload(1, 1), ends).seconds == pytest.approx(plain + 6)
    assert simulate_batch(SampleWork(8, 4), 2, machine, 2).seconds == pytest.approx(plain + 4)


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_that_share_a_core_take_as_many_times_as_long(ranks: int) -> None:
    alone, shared = (
        simulate_batch(SampleWork(64, 8), 1, machine, 5).seconds for machine in (MACHINE, MACHINE.shared(ranks))
    )
    assert shared == pytest.approx(ranks * alone)


def test_a_layer_waits_for_what_is_sent() -> None:
    # rank 0 sends 4 values: works 0.25 + 16/32, the wire takes 16/16 and 0.5; rank 1 does 8 products meanwhile,
    # unpacks in 0.75 and does 16 more
    layer = share([[0, 4], [0, 0]], [0, 24], [0, 8])
    found = simulate([layer], MACHINE, Workload(1, 1))
    assert found.path == pytest.approx(0.75 + 1.0 + 0.5 + 0.75 + 2.0)
    assert found.working == pytest.approx(1.0 + 0.75 + 2.0)
    assert found.wire == pytest.approx(1.0)


def test_tiles_follow_at_the_pace_of_the_busiest_and_no_more_than_some_at_a_time() -> None:
    layer = share([[0, 4], [4, 0]], [8, 8], [4, 4])
    one = simulate([layer], MACHINE, Workload(1, 1))
    assert simulate([layer], MACHINE, Workload(2, 1)).seconds == pytest.approx(one.path + one.working)
    slow = Machine(latency=50.0, bandwidth=16.0, message_seconds=0.25, copied_bytes=32.0, products=8.0)
    one = simulate([layer], slow, Workload(1, 1))
    assert simulate([layer], slow, Workload(6, 1)).seconds == pytest.approx(2 * one.path)


@pytest.mark.slow
def test_predictions_are_shown_and_drawn(ffnn: ModuleOp, tmp_path: Path) -> None:
    scaling = predict_scaling(ffnn, [own(count) for count in (4, 1, 256)])
    lines = scaling_lines(scaling)
    assert [line.split()[0] for line in lines[2:]] == ["1", "4", "256"]
    assert len(set(lines[2].split()[1:])) == 1  # one machine: all plans are the same
    with pytest.raises(ValueError, match=r"expected a drawing that ends in .png, .svg, .pdf, got times.txt"):
        save_scaling_plot(scaling, "ffnn", Path("times.txt"))
    with pytest.raises(ValueError, match="expected one number of parts or more, got none"):
        predict_scaling(ffnn, [])


@pytest.mark.slow
def test_the_commands_plan_and_predict(tmp_path: Path) -> None:
    model, parts, plot = tmp_path / "m.onnx", tmp_path / "parts", tmp_path / "times.svg"
    save(build("ffnn(depth=2, width=64, density=0.1)"), model)
    runner = CliRunner()
    split = runner.invoke(app, ["partition", str(model), "-p", "2", "-o", str(parts)])
    assert split.exit_code == 0, split.output
    assert "chosen: batch, the fastest" in split.output
    assert (parts / "plan.json").exists()
    shown = runner.invoke(app, ["simulate", str(model), "-p", "1,2", "--plot", str(plot)])
    assert shown.exit_code == 0, shown.output
    assert "<svg" in plot.read_text()


@pytest.mark.slow
def test_explain_shows_a_partition_beside_random_rows(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    save(build("ffnn(depth=2, width=64, density=0.1)"), model)
    shown = CliRunner().invoke(app, ["explain", str(model), "--seconds", "0", "--parts", "2"])
    assert shown.exit_code == 0, shown.output
    assert "values sent for a sample, 2 parts" in shown.output
    refused = CliRunner().invoke(app, ["explain", str(model), "--seconds", "0", "--parts", "0"])
    assert refused.exit_code == 2
    assert "--parts" in refused.output


def test_a_step_of_training_sends_as_much_backward_and_multiplies_twice(ffnn: ModuleOp) -> None:
    run, step = (
        {one.kind: one for one in plan(ffnn, PlanRequest(2, trained_bits=bits)).candidates} for bits in (None, 32)
    )
    for kind in ("rows", "layers"):
        assert step[kind].time.wire == pytest.approx(2 * run[kind].time.wire)
        assert step[kind].time.seconds > 1.5 * run[kind].time.seconds
    assert step["batch"].time.seconds > 3 * run["batch"].time.working * 0.9
    with pytest.raises(ValueError, match="expected 1 to 32 bits of a trained value, got 33"):
        PlanRequest(2, trained_bits=33)


def test_signs_of_updates_make_steps_of_replicas_on_a_slow_link_three_times_as_fast() -> None:
    module = build_module(build("ffnn(depth=4, width=1024, density=0.1)"))
    slow = Machine(bandwidth=1.25e8)
    times: dict[int, float] = {}
    for bits in (32, 1):
        request = PlanRequest(4, "batch", batch=256, trained_bits=bits, machine=slow)
        (found,) = [one for one in plan(module, request).candidates if one.kind == "batch"]
        times[bits] = found.time.seconds
    assert times[32] > 3 * times[1]
    assert exchanged_bytes(1000, 4, 32) == 6000
    assert exchanged_bytes(1000, 4, 1) < exchanged_bytes(1000, 4, 32) / 14
