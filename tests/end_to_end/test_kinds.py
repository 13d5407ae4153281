"""A stored export of each kind of network beside transformers, in every way a user runs it, against onnxruntime."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import redpebble
from redpebble.models.exports.stored import random_feeds, stored_export
from redpebble.models.pruned_weights import magnitude_mask
from redpebble.ort.session import write_library
from redpebble.runtime.network import Network
from tests.ort.provider_models import provider_session

LENGTHS: Final[Mapping[str, Sequence[int]]] = {
    "eeg": (9, 16),
    "frames": (24, 37),
    "latents": (),
    "letters": (24, 37),
    "lines": (64, 91),
    "pitch": (),
    "nhwc_resnet": (),
    "samples": (1600, 2417),
    "voice": (),
    "waves": (),
    "words": (5, 17),
}
"""Kind -> the lengths of a free axis."""

EXPORTS: Final = [
    *("frames.dynamo", "latents.classic", "latents.dynamo", "letters.classic", "lines.classic", "pitch.classic"),
    *("pitch.dynamo", "nhwc_resnet.keras", "samples.dynamo", "waves.classic", "waves.dynamo", "words.classic"),
    *("words.dynamo", "eeg.classic", "eeg.dynamo", "voice.classic", "voice.dynamo"),
]


def pruned(name: str) -> onnx.ModelProto:
    """Return an export whose recurrences have zeros, too."""
    model = stored_export(name)
    read = {one for node in model.graph.node if node.op_type in ("GRU", "LSTM") for one in node.input[1:3]}
    for tensor in model.graph.initializer:
        if tensor.name in read:
            array = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(array * magnitude_mask(array, 0.9), tensor.name))
    return model


def assert_agrees(
    name: str,
    model: onnx.ModelProto,
    *ours: onnxruntime.InferenceSession | Network,
    lengths: Sequence[int] | None = None,
) -> None:
    found_lengths = LENGTHS[name.partition(".")[0]] if lengths is None else lengths
    judge = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch, length in product((1, 2, 7), found_lengths or (0,)):
        feeds = random_feeds(model, {"batch": batch, "length": length})
        expected = judge.run(None, feeds)
        for one in ours:
            for found, wanted in zip(one.run(None, feeds), expected, strict=True):
                assert isinstance(wanted, np.ndarray)
                assert isinstance(found, np.ndarray)
                assert found.shape == wanted.shape
                scale = float(np.abs(wanted).max(initial=1e-30))
                np.testing.assert_allclose(found / scale, wanted / scale, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    "name", [name if name == "latents.classic" else pytest.param(name, marks=pytest.mark.slow) for name in EXPORTS]
)
def test_native_code_of_a_kind_agrees(name: str) -> None:
    model = pruned(name)
    assert_agrees(name, model, redpebble.compile(model, cache=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS)
def test_a_session_and_the_provider_agree_on_a_kind(name: str) -> None:
    model, lengths = pruned(name), LENGTHS[name.partition(".")[0]]
    made = redpebble.session(model, sizes=[{"length": length} for length in lengths])
    assert_agrees(name, model, made, provider_session(model))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS)
def test_an_optimized_file_of_a_kind_agrees_with_its_library_and_without(name: str, tmp_path: Path) -> None:
    model, library, lengths = pruned(name), tmp_path / "kind.so", LENGTHS[name.partition(".")[0]]
    stated = {"length": lengths[0]} if lengths and name.partition(".")[0] != "words" else None
    result = redpebble.optimize(model, sizes=stated, target="ort")
    content, options = result.proto.SerializeToString(), onnxruntime.SessionOptions()
    sessions = [onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])]
    if result.networks:
        write_library(result.model, library)
        options.register_custom_ops_library(str(library))
        sessions.append(onnxruntime.InferenceSession(content, options))
    assert_agrees(name, model, *sessions, lengths=tuple(stated.values()) if stated else lengths)
