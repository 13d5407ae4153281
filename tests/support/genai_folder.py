"""A small folder as onnxruntime-genai's model builder leaves it."""

import json
from pathlib import Path
from typing import Any, Final

import onnx_ir

from redpebble.export.save_model import save_model
from redpebble.models.exports.genai_decoders import SIZES, save_tokenizer
from redpebble.models.exports.stored import stored_export

SESSION_OPTIONS: Final[dict[str, Any]] = {
    "log_id": "onnxruntime-genai",
    "intra_op_num_threads": 1,
    "provider_options": [],
}


def write_folder(folder: Path) -> Path:
    """Write a decoder with data beside it, its configuration, a tokenizer, a folder, and a hidden file."""
    folder.mkdir()
    model = folder / "model.onnx"
    save_model(onnx_ir.from_proto(stored_export("llama.genai")), model, external_data=True)
    save_tokenizer(folder)
    heads = SIZES["num_attention_heads"]
    decoder: dict[str, Any] = {
        "session_options": SESSION_OPTIONS,
        "filename": "model.onnx",
        "head_size": SIZES["hidden_size"] // heads,
        "hidden_size": SIZES["hidden_size"],
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": heads,
        "num_hidden_layers": SIZES["num_hidden_layers"],
        "num_key_value_heads": SIZES["num_key_value_heads"],
    }
    tokens = {name: SIZES[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id", "vocab_size")}
    config: dict[str, Any] = {
        "model": {**tokens, "context_length": 256, "type": "llama", "decoder": decoder},
        "search": {"do_sample": False, "max_length": 256, "past_present_share_buffer": True},
    }
    (folder / "genai_config.json").write_text(json.dumps(config))
    (folder / "adapters").mkdir()
    (folder / "adapters" / "one.txt").write_text("1")
    (folder / ".hidden").write_text("2")
    return folder
