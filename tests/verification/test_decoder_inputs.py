"""Random inputs of a decoder's step have sizes that fit each other."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from redpebble.models.exports.stored import stored_export
from redpebble.verification.decoder_inputs import DecoderInputs
from redpebble.verification.feeds import InputChoice, inputs_for


def model_of(name: str) -> ir.Model:
    proto = stored_export(name)
    for value in (*proto.graph.input, *proto.graph.output):
        if "key" in value.name or "value" in value.name:
            value.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    return ir.from_proto(proto)


@pytest.mark.parametrize("name", ["llama.genai", "qwen3.genai", "llama_int4.genai"])
@pytest.mark.parametrize(("batch", "past", "length"), [(1, 0, 7), (1, 5, 1), (3, 5, 1), (2, 0, 4), (1, 4, 3)])
def test_onnxruntime_takes_what_is_made_for_a_step(name: str, batch: int, past: int, length: int) -> None:
    model = model_of(name)
    feeds = inputs_for(model, batch, np.random.default_rng(0), dims={"past": past, "sequence": length})
    assert feeds["attention_mask"].shape == (batch, past + length)
    assert feeds["input_ids"].max() > 1
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    logits = np.asarray(session.run(None, dict(feeds))[0])
    assert logits.shape[:2] == (batch, length)
    assert np.isfinite(logits).all()


def test_several_texts_get_one_token_behind_a_past_unless_a_length_is_given() -> None:
    model, rng = model_of("llama.genai"), np.random.default_rng(0)
    assert inputs_for(model, 1, rng)["input_ids"].shape == (1, 8)
    assert inputs_for(model, 7, rng)["input_ids"].shape == (7, 1)
    assert inputs_for(model, 7, rng, dims={"sequence": 3, "past": 0})["input_ids"].shape == (7, 3)


def test_the_axis_of_the_mask_follows_from_the_others() -> None:
    model, rng = model_of("llama.genai"), np.random.default_rng(0)
    with pytest.raises(ValueError, match="dimension 'total': expected 12, the past and the tokens, got 9"):
        inputs_for(model, 1, rng, dims={"total": 9, "past": 5, "sequence": 7})
    assert InputChoice().assumed(model) == {"sequence": 8, "past": 8}


def test_models_without_a_past_are_no_decoders() -> None:
    assert DecoderInputs.of(ir.from_proto(stored_export("bert.classic"))) is None
    assert DecoderInputs.of(ir.from_proto(stored_export("gpt2.classic"))) is not None


def test_a_decoder_of_torch_takes_several_tokens_of_several_texts_behind_a_past() -> None:
    proto = stored_export("gpt2.classic")
    feeds = inputs_for(ir.from_proto(proto), 3, np.random.default_rng(0))
    assert feeds["input_ids"].shape == (3, 8)
    logits = np.asarray(onnxruntime.InferenceSession(proto.SerializeToString()).run(None, dict(feeds))[0])
    assert np.isfinite(logits).all()
