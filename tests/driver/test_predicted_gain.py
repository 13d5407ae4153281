"""Gains and reasons that are told of quantized models: of onnxruntime's integers, whatever form a file has."""

from itertools import pairwise
from pathlib import Path

import onnx
import pytest

import redpebble
from redpebble.dialect.reports.network_report import NetworkReport
from redpebble.driver.compiler import Optimized
from redpebble.driver.placement import Placement
from redpebble.driver.predicted_gain import PredictedGain, predicted_gain
from redpebble.kernels.machine import Machine
from redpebble.kernels.prices import STREAMS
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.jit import assumed_cpu
from tests.end_to_end.test_quantized_convolutions import residual
from tests.support.quantized_models import (
    Form,
    dynamically_quantized,
    pruned_network,
    quantized,
    quantized_images,
)

SIZES = [256, 512, 256, 64]

PRODUCTS = 256 * 512 + 512 * 256 + 256 * 64

FORMS: list[Form | None] = ["qdq", "operator", None]
"""Forms of static quantization, and None for codes that each call finds."""


def in_form(form: Form | None, density: float, folder: Path) -> onnx.ModelProto:
    network = pruned_network(SIZES, density)
    if form is None:
        return dynamically_quantized(network, folder, "QInt8")
    return quantized(network, folder, form, "QUInt8", "QInt8")


def gain_of(result: Optimized) -> PredictedGain:
    assert result.gain is not None
    return result.gain


def test_quantized_layers_gain_over_integers_alike_in_all_forms(tmp_path: Path) -> None:
    floats = gain_of(redpebble.optimize(pruned_network(SIZES, 0.1), target="ort"))
    found = [redpebble.optimize(in_form(form, 0.1, tmp_path), target="ort") for form in FORMS]
    for result in found:
        assert result.placement is not None
        assert (result.placement.multiply_adds, result.placement.share) == (PRODUCTS, 1.0)
        assert gain_of(result).original_us < floats.original_us
    ratios = [gain_of(result).ratio for result in found]
    assert max(ratios) < 1.25 * min(ratios)


@pytest.mark.parametrize(("rows", "tile_us", "measured"), [(1, {"1": 15.8}, 3.89), (128, {"128": 133}, 3.37)])
def test_many_small_operators_and_their_values_take_what_was_measured(
    rows: int, tile_us: dict[str, float], measured: float
) -> None:
    """Compare a TabNet at 90 % zeros with sessions on Zen 1, which has AVX2."""
    sizes = 12 * ((128, 256),) + 4 * ((40, 256),) + 3 * ((64, 40),) + ((64, 4),)
    work = sum(inputs * outputs for inputs, outputs in sizes)
    placement = Placement(rows * work, rows * work, rows * work, rows * work, (), rows, 159, 0, 20, 20)
    network = NetworkReport(
        "0", 125, 20, work // 10, 0.1, "", tile_us, values=7728, quick_values=5368, float_layers=sizes
    )
    l3_ns, dram_ns = STREAMS["zen5"]
    machine = Machine(8, 32 << 10, 512 << 10, 8 << 20, l3_ns, dram_ns, "zen5", 8 << 20)
    gain = predicted_gain(placement, [network], machine)
    assert gain is not None
    assert 0.75 < gain.ratio / measured < 1.35


@pytest.mark.parametrize("form", FORMS)
def test_dense_layers_of_bytes_stay_because_of_their_time(form: Form | None, tmp_path: Path) -> None:
    # a CPU whose kernels of bytes were not measured has to gain on each that was
    with assumed_cpu(CpuTarget.generic()):
        placement = redpebble.optimize(in_form(form, 0.55, tmp_path), target="ort").placement
    assert placement is not None
    (line,) = placement.stayed
    assert (line.nodes, line.multiply_adds) == (3, PRODUCTS)
    assert line.reason == "no sparse kernel of bytes is predicted to be faster for every batch"


@pytest.mark.parametrize("form", FORMS)
def test_dense_weights_of_bytes_are_called_dense(form: Form | None, tmp_path: Path) -> None:
    placement = redpebble.optimize(in_form(form, 0.9, tmp_path), target="ort").placement
    assert placement is not None
    (line,) = placement.stayed
    assert line.zeros is not None
    assert line.zeros == pytest.approx(0.1, abs=0.03)
    assert line.reason == f"dense: {100 * line.zeros:.0f} % zeros; redpebble prune makes more"


@pytest.mark.parametrize("form", FORMS)
def test_dense_convolutions_of_bytes_stay_because_of_their_time(form: Form | None, tmp_path: Path) -> None:
    model = residual(density=0.55)
    if form is None:
        model = dynamically_quantized(model, tmp_path, "QUInt8", operators=["Conv"])
    else:
        model = quantized_images(model, tmp_path, form, "QUInt8")
    placement = redpebble.optimize(model, target="ort").placement
    assert placement is not None
    sparse = [line for line in placement.stayed if line.zeros is None]  # there is a dense stem, too
    assert [line.reason for line in sparse] == ["no sparse convolution gains enough by it"]


def test_a_prediction_is_for_the_rows_that_are_stated() -> None:
    results = [redpebble.optimize(pruned_network(SIZES, 0.1), target="ort", rows=rows) for rows in (0, 8, 128)]
    gains = [gain_of(result) for result in results]
    assert [gain.rows for gain in gains] == [1, 8, 128]
    assert all(before.original_us < after.original_us for before, after in pairwise(gains))
    assert [result.placement.multiply_adds for result in results if result.placement] == [
        n * PRODUCTS for n in (1, 8, 128)
    ]
