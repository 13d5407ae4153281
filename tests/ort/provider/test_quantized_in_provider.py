"""Quantized models in a plain session: the provider takes their layers, and yields the bytes of onnxruntime's."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from redpebble.ort.provider.register import host
from tests.end_to_end.test_quantized import needs_vnni
from tests.end_to_end.test_quantized_convolutions import (
    STATIC,
    UNUSUAL,
    Network,
    images,
    residual,
    share_of_a_step,
)
from tests.end_to_end.test_quantized_transformers import deviation, encoder
from tests.end_to_end.test_quantized_transformers import inputs as inputs_of_encoder
from tests.ort.provider_models import plain_session, provider_session
from tests.support.quantized_models import (
    Form,
    dynamically_quantized,
    pruned_network,
    quantized,
    quantized_images,
    statically_quantized,
    with_dense_end,
)

SMALL_STEPS = 0.02
"""Share of results that may be another code: the mean of an image is rounded once more."""


def share_that_differs(model: onnx.ModelProto, *inputs: NDArray[np.float32]) -> float:
    """Return the share of results of the provider, which takes the model whole, that differ from onnxruntime's."""
    ours, plain = provider_session(model), plain_session(model)
    assert host().network_count == 1
    return max(share_of_a_step(ours.run(None, {"x": x})[0], plain.run(None, {"x": x})[0]) for x in inputs)


@pytest.mark.slow
@needs_vnni
@pytest.mark.parametrize("form", ["qdq", "operator"])
def test_the_provider_takes_quantized_layers(form: Form, tmp_path: Path) -> None:
    model = quantized(pruned_network([40, 64, 48, 20], 0.15), tmp_path, form, "QUInt8", "QInt8")
    rng = np.random.default_rng(1)
    assert share_that_differs(model, *(rng.standard_normal((rows, 40), dtype=np.float32) for rows in (1, 7, 70))) == 0


def test_layers_in_front_of_a_dense_one_of_codes_stay_with_it(tmp_path: Path) -> None:
    model = quantized(with_dense_end(), tmp_path, "qdq", "QUInt8", "QInt8")
    ours, plain = provider_session(model), plain_session(model)
    x = np.random.default_rng(1).standard_normal((5, 128), dtype=np.float32)
    assert host().network_count == 0
    assert np.array_equal(ours.run(None, {"x": x})[0], plain.run(None, {"x": x})[0])


@pytest.mark.slow
@needs_vnni
@pytest.mark.parametrize("form", STATIC, ids=lambda form: "_".join(map(str, form)))
def test_the_provider_takes_quantized_convolutions(form: tuple[Form, str, bool], tmp_path: Path) -> None:
    written, activations, per_channel = form
    model = quantized_images(residual(), tmp_path, written, activations, per_channel=per_channel)
    assert share_that_differs(model, images(1), images(3)) < SMALL_STEPS


@pytest.mark.slow
@needs_vnni
def test_the_provider_finds_codes_of_convolutions(tmp_path: Path) -> None:
    model = dynamically_quantized(residual(mean=False), tmp_path, "QUInt8", per_channel=True, operators=["Conv"])
    assert share_that_differs(model, images(1), images(3)) == 0


@needs_vnni
@pytest.mark.parametrize("form", ["operator", pytest.param("qdq", marks=pytest.mark.slow)])
def test_a_dense_convolution_among_sparse_ones_is_taken_with_them(form: Form, tmp_path: Path) -> None:
    net = Network()
    x = net.node("Relu", net.conv("x", (3, 128, 3)))
    for density in (0.05, 1.0, 0.05, 0.05):
        x = net.node("Relu", net.conv(x, (128, 128, 3), density))
    model = quantized_images(net.model(x, 14), tmp_path, form, "QUInt8", per_channel=True)
    assert share_that_differs(model, images(2, 14)) == 0


@pytest.mark.slow
@needs_vnni
@pytest.mark.parametrize("name", ["plain", "weights above 127", "integers", "integers scaled by channels"])
def test_the_provider_takes_operators_on_codes(name: str) -> None:
    model = UNUSUAL[name]
    shape = [dim.dim_value or 2 for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert share_that_differs(model, np.random.default_rng(6).standard_normal(shape, dtype=np.float32)) == 0


@pytest.mark.slow
@needs_vnni
def test_the_provider_takes_quantized_attention(tmp_path: Path) -> None:
    model = statically_quantized(encoder(), [inputs_of_encoder(2, 12)], tmp_path, None, but=["mask"])
    ours, plain = provider_session(model), plain_session(model)
    assert host().network_count == 1
    for samples, length in ((1, 12), (2, 40)):
        arrays = inputs_of_encoder(samples, length)
        assert deviation(ours.run(None, arrays), plain.run(None, arrays)) < 0.02
