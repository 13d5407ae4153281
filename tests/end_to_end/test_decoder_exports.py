"""Steps of decoders as torch's exporters, optimum and mobius write them: prompts, steps and chunks behind pasts."""

from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

import redpebble
from redpebble.models.exports.stored import stored_export, stored_names
from redpebble.ort.session import write_library
from redpebble.verification.decoder_inputs import MASK, DecoderInputs
from tests.end_to_end.test_decoders import FAR, Call
from tests.ort.provider_models import options, provider_session

WRITERS: Final = (".mobius", ".mobius_cpu", ".optimum", "_step.classic", "_step.dynamo")
NAMES: Final = ["gpt2.classic", "gpt2.dynamo", *(name for name in stored_names() if name.endswith(WRITERS))]
CALLS: Final = (
    Call(1, 7, 0),
    Call(1, 1, 64),
    Call(4, 1, 17, padding=5),
    Call(2, 7, 0, padding=3, zeros_first=True),
)

POSITIONS: Final = {"gpt2.classic": 1024, "gpt2.dynamo": 1024}
"""Positions of decoders that have fewer than `FAR` asks for."""


def calls_of(name: str) -> tuple[Call, ...]:
    most = POSITIONS.get(name, 2048)
    return tuple(call for call in CALLS + FAR if call.past + call.length <= most)


def assert_agrees(
    proto: onnx.ModelProto,
    ours: onnxruntime.InferenceSession,
    calls: tuple[Call, ...] = CALLS,
    tolerance: float = 2e-5,
) -> None:
    """Assert that a session computes what onnxruntime makes of the original."""
    inputs = DecoderInputs.of(onnx_ir.from_proto(proto))
    assert inputs is not None
    judge = onnxruntime.InferenceSession(proto.SerializeToString(), options(), providers=["CPUExecutionProvider"])
    for call in calls:
        rng = np.random.default_rng(call)
        feeds = inputs.feeds(rng.integers(0, inputs.vocabulary, (call.batch, call.length)), call.past, rng)
        read = np.ones((call.batch, call.past + call.length), np.int64)
        if MASK in feeds:
            read[1::2, read.shape[1] - call.padding :] = 0
            read = read[:, ::-1] if call.zeros_first else read
            feeds[MASK] = np.ascontiguousarray(read, feeds[MASK].dtype)
        # padding that reads nothing has no result
        is_token = read[:, call.past :].astype(bool) if call.past == 0 else np.full((call.batch, call.length), True)
        for expected, found in zip(judge.run(None, feeds), ours.run(None, feeds), strict=True):
            assert isinstance(expected, np.ndarray)
            assert isinstance(found, np.ndarray)
            assert expected.shape == found.shape
            if expected.ndim == 3:
                expected, found = expected[is_token], found[is_token]
            else:
                expected, found = (np.moveaxis(one, 1, 2)[read.astype(bool)] for one in (expected, found))
            scale = float(np.abs(expected).max(initial=1e-30))
            np.testing.assert_allclose(found / scale, expected / scale, atol=tolerance, rtol=0, err_msg=str(call))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_steps_agree_in_sessions_and_without_our_library(name: str) -> None:
    proto = stored_export(name)
    result = redpebble.optimize(proto, target="ort")
    # one before the first attention of two, one between them, one behind the last; or one with attention inside
    assert 1 <= len(result.networks) <= 3
    assert sum(network.layers for network in result.networks) >= 7
    assert_agrees(proto, redpebble.session(result.model, options()), calls_of(name))
    plain = onnxruntime.InferenceSession(result.proto.SerializeToString(), options())
    assert_agrees(proto, plain, calls_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_steps_agree_in_libraries_and_by_the_provider(name: str, tmp_path: Path) -> None:
    proto = stored_export(name)
    result, library, shipped = redpebble.optimize(proto, target="ort"), tmp_path / "model.so", options()
    write_library(result.model, library)
    shipped.register_custom_ops_library(str(library))
    ours = onnxruntime.InferenceSession(result.proto.SerializeToString(), shipped)
    assert_agrees(proto, ours, calls_of(name))
    assert_agrees(proto, provider_session(proto), calls_of(name))
