"""The first lines about a model: numbers with their units, in few columns, and what was left alone."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import redpebble
from redpebble.driver.compiler import Optimized
from redpebble.driver.placement import Placement, Stayed
from redpebble.export.save_model import save_model
from redpebble.frontend.reading.model_source import read_model
from redpebble.models.exports.stored import stored_export
from redpebble.models.zoo import build
from redpebble.tools.commands import MeasuredGain, summary
from redpebble.tools.headline import headline, left_alone, lines_of
from tests.support.command_line import exit_code
from tests.support.quantized_models import pruned_network

REASON = "expected a constant weight, got two computed operands"


@pytest.fixture(scope="module")
def dlrm() -> Optimized:
    return redpebble.optimize(stored_export("dlrm.dynamo"))


def test_the_first_sentence_says_gain_share_and_what_stays(dlrm: Optimized) -> None:
    gain, taken, stays = (part.replace("\N{NO-BREAK SPACE}", " ") for part in headline(dlrm))
    assert dlrm.gain is not None
    assert gain.endswith(f"x predicted in a session at 1 row, at most {dlrm.gain.bound:.1f}x by Amdahl's law")
    assert taken == "6 of 6 layers, 98 % of multiply-adds taken"
    assert stays.endswith(" us stay with onnxruntime: MatMul 2 %")
    assert 1 < dlrm.gain.ratio < dlrm.gain.bound


def test_nothing_to_gain_is_said_with_its_reason() -> None:
    result = redpebble.optimize(build("ffnn(depth=1, width=256, density=0.58)"))
    assert result.gain is None
    assert headline(result) == ["nothing gains: no layer is predicted to gain from sparse kernels"]


def test_what_stays_is_named_in_few_columns() -> None:
    placement = Placement(1000, 700, 900, 700, (Stayed("MatMul", 2, 240, REASON), Stayed("Gemm", 1, 60, "")))
    lines = list(left_alone(placement, 60))
    assert max(map(len, lines)) <= 60
    assert lines[2].startswith("  MatMul, 2 nodes, 24 %: expected a constant weight")
    assert lines[-1] == "  Gemm, 1 node, 6 %: redpebble has no code for this operator"


def test_no_number_is_parted_from_its_unit(dlrm: Optimized) -> None:
    for width in range(20, 121):
        lines = lines_of("; ".join(headline(dlrm)), width)
        assert all(len(line) <= max(width, 14) for line in lines)
        assert not any(line.rstrip()[-1].isdigit() for line in lines)


@pytest.mark.slow
def test_calls_and_nodes_are_priced_and_a_check_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few multiply-adds leave little to gain."""
    report, files = tmp_path / "report.json", (tmp_path / "in.onnx", tmp_path / "out.onnx")
    save_model(build("digits"), files[0])
    monkeypatch.setattr("redpebble.tools.commands.SECONDS", 0.0)
    assert exit_code(monkeypatch, "optimize", *files, "--check", 1, "--batch", 1, "--report", report) == 0
    content = json.loads(report.read_text())
    assert content["predicted"]["ratio"] < 10
    measured = content["measured"]
    assert measured["rounds"] >= 3
    assert measured["ratio"] == pytest.approx(measured["original_us"] / measured["ours_us"])
    assert content["placement"]["nodes"] > content["placement"]["nodes_left"]


def test_what_is_of_another_type_says_so_and_what_was_optimized_before_too() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (double[N, 2] x) => (double[N, 2] y)
        <double[2, 2] w = {1.0, 0.0, 0.0, 0.0}> { y = MatMul (x, w) }"""
    )
    doubles = redpebble.optimize(proto)
    placement = doubles.placement
    assert placement is not None
    assert headline(doubles) == ["nothing gains: no layer is covered"]
    assert placement.stayed[0].reason == "expected float or float16 operands, got double"
    once = redpebble.optimize(build("ffnn(depth=2, width=64, density=0.1)"))
    assert once.networks
    twice = redpebble.optimize(once.proto)
    assert headline(twice)[0].endswith("optimized before, 1 of its nodes is a sparse network")


@pytest.mark.parametrize(
    "times, shown",
    [
        ((840.4, 218.3), "3.8x measured in a session on one thread, 840 -> 218 us a call"),
        ((2020.0, 908.0), "2.2x measured in a session on one thread, 2.02 -> 0.908 ms a call"),
        ((990.0, 1240.0), "0.8x measured in a session on one thread, 990 -> 1240 us a call"),
        ((1.5e6, 3e5), "5.0x measured in a session on one thread, 1.5 -> 0.3 s a call"),
    ],
)
def test_measured_times_are_in_a_unit_in_which_they_are_read(times: tuple[float, float], shown: str) -> None:
    assert str(MeasuredGain(*times, rounds=3)) == shown


def test_weights_of_eight_bits_are_counted(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 2] x) => (float[N, 2] y)
        <int8[2, 2] q = {1, 0, 0, 2}, float s = {0.5}> { w = DequantizeLinear (q, s) y = MatMul (x, w) }"""
    )
    path = tmp_path / "q.onnx"
    path.write_bytes(proto.SerializeToString())
    found = summary(read_model(path), [path])
    assert (found["weights"], found["weights that are not zero"]) == (5, 3)


def test_weights_of_eight_bits_that_are_stored_with_gaps_are_counted(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((50, 64), dtype=np.float32)
    result = redpebble.optimize(pruned_network([64, 96], 0.1), samples={"x": x})
    connections = sum(layer.connections for layer in result.report)
    result.save(tmp_path / "q.onnx")
    found = summary(read_model(tmp_path / "q.onnx"), [tmp_path / "q.onnx"])
    # beside them are a bias and a multiplier of each output
    assert connections <= found["weights that are not zero"] <= found["weights"] < 2 * connections


def test_networks_of_which_no_gain_is_known_are_counted() -> None:
    """Operators such as DynamicQuantizeLSTM hide the sizes by which work is counted."""
    result = redpebble.optimize(build("ffnn(depth=2, width=200, density=0.1)"))
    assert len(result.networks) == 1
    unknown = replace(result, left=None)
    assert headline(unknown) == ["1 sparse network, the gain is not known: sizes of the model are not"]
