"""Decoders as onnxruntime-genai's model builder writes them, in small.

`python -m redpebble.models.exports.genai_decoders` writes them all, and needs `onnxruntime-genai`, `torch` and
`transformers`. Codes of four bits are stored with their scales; weights of floats lose their values.
"""

import gzip
import json
import runpy
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import onnx

from .stored import FOLDER, hollow

SIZES: Final[dict[str, Any]] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
"""Sizes of every decoder. The builder takes a layer with as many outputs as there are tokens for the head."""

AXES: Final = {
    "batch_size": "batch",
    "sequence_length": "sequence",
    "past_sequence_length": "past",
    "total_sequence_length": "total",
    "past_sequence_length + sequence_length": "total",
    "sequence_len": "sequence",
    "past_sequence_len": "past",
    "past_seq_len + seq_len": "total",
}
"""Names of free axes of the builder, of optimum and of mobius, and those of the other exports."""


class Decoder(NamedTuple):
    """A class of transformers without its ending "Config", further sizes, and the precision of the weights."""

    config: str
    options: dict[str, Any]
    precision: str = "fp32"


WINDOW: Final = 16
WHOLE: Final[dict[str, Decoder]] = {
    "gemma2": Decoder("Gemma2", {"head_dim": 16, "sliding_window": WINDOW, "query_pre_attn_scalar": 16}),
    "gemma3": Decoder(
        "Gemma3Text",
        {
            "head_dim": 16,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "query_pre_attn_scalar": 16,
            "sliding_window": WINDOW,
        },
    ),
    "llama": Decoder("Llama", {}),
    "llama_int4": Decoder("Llama", {}, "int4"),
    "llama_tied_int4": Decoder("Llama", {"tie_word_embeddings": True}, "int4"),
    "mistral": Decoder("Mistral", {"head_dim": 16, "sliding_window": WINDOW}),
    "phi3": Decoder("Phi3", {"original_max_position_embeddings": 256}),
    "phi": Decoder("Phi", {"partial_rotary_factor": 0.5, "num_attention_heads": 2}),
    "qwen2": Decoder("Qwen2", {}),
    "qwen3": Decoder("Qwen3", {"head_dim": 16}),
}
OF_FOUR_BITS: Final = ("gemma2", "mistral", "phi3", "qwen2", "qwen3")
"""Decoders that are stored with one layer of four bits as well."""

DECODERS: Final[dict[str, Decoder]] = {
    **WHOLE,
    **{
        f"{name}_int4": Decoder(WHOLE[name].config, {**WHOLE[name].options, "num_hidden_layers": 1}, "int4")
        for name in OF_FOUR_BITS
    },
}


def build(decoder: Decoder, folder: Path) -> onnx.ModelProto:
    """Return the decoder that the builder writes into `folder`, with its tokenizer and configuration."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{decoder.config}Config")(**SIZES | decoder.options)
    source = folder / "source"
    transformers.AutoModelForCausalLM.from_config(config).float().eval().save_pretrained(source)
    save_tokenizer(source)
    run_builder(source, folder, decoder.precision)
    return onnx.load(folder / "model.onnx")  # pyright: ignore[reportUnknownMemberType]


def run_builder(source: Path, folder: Path, precision: str) -> None:
    """Write a folder of onnxruntime-genai from a folder of transformers; four bits are in blocks of 32 weights."""
    options = ["--extra_options", "int4_block_size=32", "int4_accuracy_level=4"] if precision == "int4" else []
    with tempfile.TemporaryDirectory() as cache:
        where = ["-m", str(source), "-i", str(source), "-o", str(folder), "-c", cache]
        with (
            patch.object(sys, "argv", ["builder", *where, "-p", precision, "-e", "cpu", *options]),
            _angles_of_gemma3(),
        ):
            runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__")


@contextmanager
def _angles_of_gemma3() -> Generator[None]:
    """Give the builder the angles of Gemma 3 as transformers 4 has them; version 5 has some for each kind of layer."""

    def make(model: Any, config: Any) -> None:  # noqa: ANN401 - of packages without types
        angles = config.rope_parameters
        config.rope_local_base_freq = angles["sliding_attention"]["rope_theta"]
        model.rope_attrs["theta"] = angles["full_attention"]["rope_theta"]

    folder = str(Path(import_module("onnxruntime_genai").__file__ or "").parent / "models")
    # the builder runs as a script, and imports what lies beside it
    with patch.object(sys, "path", [folder, *sys.path]):
        kind = import_module("builders.gemma").Gemma3Model
        with patch.object(kind, "make_rope_init", make):
            yield


def save_tokenizer(folder: Path) -> None:
    """Save a tokenizer whose 256 tokens are bytes, as those of GPT-2 write them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + n) for n, byte in enumerate(others)}}
    content: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    special = {"bos_token": letters[1], "eos_token": letters[2], "pad_token": letters[0]}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 256, **special})
    )


KEPT_BY: Final = frozenset({"GatherBlockQuantized", "GroupQueryAttention", "MatMulNBits"})
"""Operators whose constants are stored: cosines and sines of positions, and scales of codes."""


def stored_form(model: onnx.ModelProto, head_size: int) -> onnx.ModelProto:
    """Return a copy with the names of axes that other exports have, and without what large float weights hold."""
    copy = hollow(model)
    kept = {name for node in model.graph.node if node.op_type in KEPT_BY for name in node.input}
    for tensor, before in zip(copy.graph.initializer, model.graph.initializer, strict=True):
        if tensor.name in kept:
            tensor.CopyFrom(before)
    name_axes(copy, head_size)
    return copy


def name_axes(model: onnx.ModelProto, head_size: int) -> None:
    """Give axes the names that other exports have, and the size of a head where keys have but a name for it."""
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "kv_cache_dim":
                dim.dim_value = head_size
            elif dim.dim_param in AXES:
                dim.dim_param = AXES[dim.dim_param]


def write(name: str, folder: Path = FOLDER) -> Path:
    """Write one decoder, its weights left out where they are floats, and return its path."""
    with tempfile.TemporaryDirectory() as scratch:
        sizes = SIZES | DECODERS[name].options
        head_size = sizes["hidden_size"] // sizes["num_attention_heads"]
        model = stored_form(build(DECODERS[name], Path(scratch)), head_size)
    path = folder / f"{name}.genai.onnx.gz"
    path.write_bytes(gzip.compress(model.SerializeToString(deterministic=True), 9, mtime=0))
    return path


def main() -> None:
    """Write the decoders that are named, or all."""
    for name in sys.argv[1:] or DECODERS:
        path = write(name)
        print(f"{path.name}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
