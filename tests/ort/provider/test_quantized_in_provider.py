"""Quantized models in a plain session: the provider takes their layers, and yields the bytes of onnxruntime's."""

import gc
from pathlib import Path

import numpy as np
import pytest

from redpebble.ort.provider.register import host, unregister
from redpebble.runtime.jit import host_target
from tests.ort.provider_models import plain_session, provider_session
from tests.support.quantized_models import Form, pruned_network, quantized


@pytest.mark.slow
@pytest.mark.skipif("vnni" not in host_target().features.replace("-avx512vnni", ""), reason="sums saturate")
@pytest.mark.parametrize("form", ["qdq", "operator"])
def test_the_provider_takes_quantized_layers(form: Form, tmp_path: Path) -> None:
    model = quantized(pruned_network([40, 64, 48, 20], 0.15), tmp_path, form, "QUInt8", "QInt8")
    ours, plain = provider_session(model), plain_session(model)
    try:
        assert host().network_count == 1
        for rows in (1, 7, 70):
            x = np.random.default_rng(rows).standard_normal((rows, 40), dtype=np.float32)
            assert np.array_equal(ours.run(None, {"x": x})[0], plain.run(None, {"x": x})[0])
    finally:
        del ours
        gc.collect()
        unregister()
