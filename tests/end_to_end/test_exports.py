"""Files that torch's exporters wrote of real architectures: accepted, taken as far as said here, and still right."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest

import redpebble
from redpebble.dialect.ops.layers import LinearOp
from redpebble.driver.compiler import Optimized
from redpebble.frontend.import_model import import_model
from redpebble.models.exports.stored import random_feeds, stored_export, stored_names
from redpebble.ort.any_model import session
from redpebble.runtime.network import Network
from tests.ort.provider_models import provider_session


class Expected(NamedTuple):
    """How many nodes of ours an export may have, and how many of its linear layers they hold at least."""

    nodes: int
    layers: int


SMALL: Final[Mapping[str, Expected]] = {
    "bert": Expected(1, 12),
    "convnext": Expected(2, 4),
    "deit": Expected(1, 12),
    "distilbert": Expected(1, 12),
    "dlrm": Expected(2, 3),
    "ft_transformer": Expected(2, 13),
    "gpt2": Expected(2, 9),
    "lstm": Expected(3, 1),
    "mixer": Expected(5, 9),
    "resnet": Expected(1, 1),  # its images are so small that convolutions gain nothing
    "t5": Expected(2, 14),
    "tabnet": Expected(4, 16),
    "whisper": Expected(1, 12),
}

FURTHER: Final[Mapping[str, Expected]] = {
    "albert": Expected(1, 13),
    "bart": Expected(5, 31),
    "beit": Expected(1, 12),
    "bloom": Expected(5, 8),
    "deberta": Expected(5, 12),
    "dinov2": Expected(1, 12),
    "electra": Expected(2, 13),
    "falcon": Expected(3, 8),
    "gemma": Expected(3, 12),
    "gptj": Expected(3, 12),
    "llama": Expected(3, 14),
    "llama_step": Expected(3, 15),  # heads share keys and values, behind a past
    "modernbert": Expected(3, 8),
    "mpnet": Expected(1, 12),
    "neox": Expected(3, 8),
    "opt": Expected(4, 12),
    "phi": Expected(3, 8),
    "qwen": Expected(3, 14),
    "segformer": Expected(8, 12),
    "siglip": Expected(1, 12),
    "stacked": Expected(6, 8),
    "states": Expected(6, 8),
    "swin": Expected(11, 25),
}
"""Ways of writing attention: angles of positions lie between the nodes of a decoder's layers."""

NATIVE: Final = (
    "albert",
    "electra",
    "llama",
    "modernbert",
    "mpnet",
    "neox",
    "phi",
    "qwen",
    "siglip",
    "stacked",
    "states",
)
"""Networks that `compile` takes, too, by either exporter."""

STEPS: Final = (".genai", ".mobius", ".mobius_cpu", ".optimum", "_step.classic", "_step.dynamo")
NAMES: Final = [name for name in stored_names() if not name.endswith(STEPS) or name.startswith("llama_step")]
"""Steps of decoders have tests of their own, `test_decoders.py` and `test_decoder_exports.py`."""
DEFAULT: Final = ("bert.classic", "deit.dynamo", "gpt2.dynamo", "llama.classic", "mpnet.classic", "tabnet.classic")
"""Exports that the default suite reads beside small ones of dynamo; it optimizes the first and the last of them."""


def sizes_of(model: onnx.ModelProto) -> Iterator[dict[str, int]]:
    """Sizes of the free axes: several batches, several lengths, and a past where there is one."""
    names = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    for batch, length in ((1, 1), (2, 7), (3, 33)):
        past = length if length < 10 else 0
        known = {"batch": batch, "sequence": length, "past": past, "total": length + past, "length": length + 2}
        known["tokens"] = 10
        yield {name: known[name] for name in names if name}


def assert_agrees(
    proto: onnx.ModelProto,
    ours: onnxruntime.InferenceSession | Network,
    all_sizes: Iterable[Mapping[str, int]] | None = None,
) -> None:
    """Assert that a session computes what onnxruntime makes of the original, in the usual sizes or those given."""
    judge = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for sizes in sizes_of(proto) if all_sizes is None else all_sizes:
        feeds = random_feeds(proto, sizes)
        for expected, found in zip(judge.run(None, feeds), ours.run(None, feeds), strict=True):
            assert isinstance(expected, np.ndarray)
            assert isinstance(found, np.ndarray)
            scale = float(np.abs(expected).max(initial=1e-30))
            assert expected.shape == found.shape
            np.testing.assert_allclose(found / scale, expected / scale, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in DEFAULT or (name.endswith(".dynamo") and own in SMALL)
        else pytest.param(name, marks=pytest.mark.slow)
        for name in NAMES
        if (own := name.partition(".")[0]) in SMALL or own in FURTHER
    ],
)
def test_an_export_is_accepted(name: str) -> None:
    module = import_model(stored_export(name), foreign="keep").module
    assert any(isinstance(op, LinearOp) for op in module.walk())


def test_linear_layers_of_an_export_are_taken() -> None:
    assert_taken(DEFAULT[0], redpebble.optimize(stored_export(DEFAULT[0]), target="ort"))


def assert_taken(name: str, result: Optimized) -> None:
    expected = {**SMALL, **FURTHER}[name.partition(".")[0]]
    assert len(result.networks) <= expected.nodes
    assert sum(network.layers for network in result.networks) >= expected.layers


def test_linear_layers_of_an_export_are_taken_and_its_session_agrees() -> None:
    proto = stored_export(DEFAULT[-1])
    result = redpebble.optimize(proto, target="ort")
    assert_taken(DEFAULT[-1], result)
    assert_agrees(proto, session(result.model))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_sessions_of_all_exports_agree(name: str) -> None:
    proto = stored_export(name)
    result = redpebble.optimize(proto, target="ort")
    if name.partition(".")[0] in {**SMALL, **FURTHER}:
        assert_taken(name, result)
    assert_agrees(proto, session(result.model))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_provider_agrees_on_all_exports(name: str) -> None:
    proto = stored_export(name)
    assert_agrees(proto, provider_session(proto))


@pytest.mark.parametrize(
    "name",
    [
        name if name.startswith("sta") else pytest.param(name, marks=pytest.mark.slow)
        for name in NAMES
        if name.partition(".")[0] in NATIVE
    ],
)
def test_native_code_of_further_encoders_agrees(name: str) -> None:
    proto = stored_export(name)
    assert_agrees(proto, redpebble.compile(proto, cache=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name.partition(".")[0] in {**SMALL, **FURTHER}])
def test_sessions_agree_on_texts_of_512_tokens_with_padding(name: str) -> None:
    proto = stored_export(name)
    names = {dim.dim_param for value in proto.graph.input for dim in value.type.tensor_type.shape.dim}
    if "sequence" not in names:
        pytest.skip("reads no text")
    known = {"batch": 2, "sequence": 512, "past": 0, "total": 512, "length": 512}
    assert_agrees(proto, session(proto), [{one: known[one] for one in names if one}])
