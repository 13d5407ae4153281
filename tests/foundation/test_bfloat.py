"""Rounding to bfloat16, against `ml_dtypes`, which onnx brings."""

import ml_dtypes
import numpy as np

from redpebble.foundation.bfloat import bfloat_bits, rounded_to_bfloat


def test_every_float_becomes_the_nearest_bfloat16_ties_to_even() -> None:
    rng = np.random.default_rng(0)
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=np.uint32)
    bits = np.concatenate([(upper[:, None] | lower).ravel(), rng.integers(0, 1 << 32, 100_000, dtype=np.uint32)])
    values = bits.view(np.float32)
    with np.errstate(invalid="ignore"):
        expected = values.astype(ml_dtypes.bfloat16)
    known = ~np.isnan(values)
    assert np.array_equal(bfloat_bits(values)[known], expected.view(np.uint16)[known])
    assert np.isnan(rounded_to_bfloat(values)[~known]).all()
    assert np.array_equal(rounded_to_bfloat(values)[known], expected.astype(np.float32)[known])
