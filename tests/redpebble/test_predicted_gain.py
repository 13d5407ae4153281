"""Gains and reasons that are told of quantized models: of onnxruntime's integers, whatever form a file has."""

from pathlib import Path

import onnx
import pytest

import redpebble
from redpebble.compiler import Optimized
from redpebble.predicted_gain import PredictedGain
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


@pytest.mark.parametrize("form", FORMS)
def test_dense_layers_of_bytes_stay_because_of_their_time(form: Form | None, tmp_path: Path) -> None:
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
