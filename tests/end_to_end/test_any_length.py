"""Real exports of convolutions over what has any length: letters, samples, features in time, lines of text."""

from typing import Final

import numpy as np
import onnxruntime
import pytest

import redpebble
from redpebble.models.exports.stored import random_feeds, stored_export
from redpebble.ort.sized_session import SizedSession

LENGTHS: Final = {"frames": (40, 57), "letters": (40, 57), "lines": (64, 91), "samples": (1600, 2417)}
"""Export -> lengths that get code, where there is none for all of them."""

ONE_CODE: Final = ("letters", "samples")
"""Exports whose code is that of every length."""

NAMES: Final = [f"{name}.{exporter}" for name in LENGTHS for exporter in ("classic", "dynamo")]
DEFAULT: Final = ("letters.dynamo",)


@pytest.mark.parametrize(
    "name", [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_a_session_has_code_for_lengths_of_an_export(name: str) -> None:
    proto, kind = stored_export(name), name.partition(".")[0]
    lengths = LENGTHS[kind]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    ours = redpebble.session(proto, options, sizes=[{"length": length} for length in lengths])
    assert isinstance(ours, SizedSession) == (kind not in ONE_CODE)
    if isinstance(ours, SizedSession):
        assert ours.code.ready_sizes() == [{"length": length} for length in lengths]
    judge = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for length in (*lengths, lengths[0] + 3):
        for batch in (1, 2, 7):
            feeds = random_feeds(proto, {"batch": batch, "length": length})
            (expected,), (found,) = judge.run(None, feeds), ours.run(None, feeds)
            assert isinstance(expected, np.ndarray)
            assert isinstance(found, np.ndarray)
            assert expected.shape == found.shape
            scale = float(np.abs(expected).max(initial=1e-30))
            np.testing.assert_allclose(found / scale, expected / scale, atol=2e-5, rtol=0)
