"""Steps of small decoders as torch's exporters, Hugging Face's optimum and mobius write them.

`python -m redpebble.models.exports.decoder_exports [NAME.WRITER ...]` writes those whose names begin so, or all. Those
of torch need the extra `zoo`; `optimum` needs optimum-onnx 0.1 beside transformers 4.57, `mobius` the package
mobius-onnx 0.1. mobius builds one decoder in operators of opset 24, another in onnxruntime's own (`mobius_cpu`).
"""

import gzip
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import onnx

from .genai_decoders import SIZES, WINDOW, Decoder, name_axes
from .stored import FOLDER, hollow

LONGEST: Final = 2048
"""Positions: texts of 512 tokens behind a past of 1024 have room."""

HEAD_SIZE: Final = 16
KEPT: Final = {"head_dim": HEAD_SIZE, "sliding_window": WINDOW}
GEMMA: Final = {**KEPT, "query_pre_attn_scalar": HEAD_SIZE}

DECODERS: Final[Mapping[str, Decoder]] = MappingProxyType(
    {
        "gemma2": Decoder("Gemma2", GEMMA),
        "gemma3": Decoder("Gemma3Text", GEMMA),
        "gpt2": Decoder("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": LONGEST}),
        "llama": Decoder("Llama", {}),
        "mistral": Decoder("Mistral", KEPT),
        "phi3": Decoder("Phi3", {}),
        "qwen2": Decoder("Qwen2", {}),
        "qwen3": Decoder("Qwen3", {"head_dim": HEAD_SIZE}),
    }
)

Model = Any
"""A module or a configuration: torch and transformers have no types here."""


def config_of(name: str) -> Model:
    """Return the configuration of a decoder of two layers."""
    decoder, transformers = DECODERS[name], import_module("transformers")
    usual = {**SIZES, "num_hidden_layers": 2, "max_position_embeddings": LONGEST}
    # GPT-2 names its sizes as no other does
    sizes = {"vocab_size": SIZES["vocab_size"]} if name == "gpt2" else usual
    return getattr(transformers, f"{decoder.config}Config")(**(sizes | decoder.options))


def network_of(config: Model, **options: str) -> Model:
    """Return a decoder with random weights."""
    import_module("torch").manual_seed(0)
    return import_module("transformers").AutoModelForCausalLM.from_config(config, **options).float().eval()


def by_torch(name: str, exporter: str) -> onnx.ModelProto:
    """Return a step whose past goes in and comes out, by one of torch's exporters."""
    architectures, writer = (import_module(f".{one}", __package__) for one in ("architectures", "write_exports"))
    config = config_of(name)
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    network = network_of(config, attn_implementation="eager")
    return writer.export(architectures.decoder_step(network, config.num_hidden_layers, (heads, HEAD_SIZE)), exporter)


def by_optimum(name: str) -> onnx.ModelProto:
    """Return the decoder with a past that optimum exports."""
    export = import_module("optimum.exporters.onnx").onnx_export_from_model
    with tempfile.TemporaryDirectory() as folder:
        network = network_of(config_of(name))
        export(network, Path(folder), task="text-generation-with-past", do_validation=False, opset=18)
        return onnx.load(Path(folder) / "model.onnx")  # pyright: ignore[reportUnknownMemberType]


def by_mobius(name: str, provider: str) -> onnx.ModelProto:
    """Return the decoder that mobius builds for a provider of onnxruntime, with the weights of transformers."""
    mobius, ir = import_module("mobius"), import_module("onnx_ir")
    config = config_of(name)
    kind = mobius.registry.get(config.model_type)
    own = import_module("mobius._config_resolver")._config_from_hf(config, module_class=kind)
    module = kind(own)
    model = mobius.build_from_module(kind(own), own, execution_provider=provider)["model"]
    mobius.apply_weights(model, module.preprocess_weights(network_of(config).state_dict()))
    return ir.to_proto(model)


WRITERS: Final[Mapping[str, Callable[[str], onnx.ModelProto]]] = MappingProxyType(
    {
        "classic": lambda name: by_torch(name, "classic"),
        "dynamo": lambda name: by_torch(name, "dynamo"),
        "optimum": by_optimum,
        "mobius": lambda name: by_mobius(name, "default"),
        "mobius_cpu": lambda name: by_mobius(name, "cpu"),
    }
)


ELSEWHERE: Final = ("gpt2", "llama")
"""Steps that `write_exports` writes by torch's exporters."""


def stored_name(name: str, writer: str) -> str:
    """Return the name of a stored export: torch's exporters have written prompts of these decoders as well."""
    return f"{name}_step.{writer}" if writer in ("classic", "dynamo") else f"{name}.{writer}"


def store(model: onnx.ModelProto, name: str, writer: str, folder: Path = FOLDER) -> Path:
    """Write an export, its weights left out, and return its path."""
    copy = hollow(model)
    name_axes(copy, HEAD_SIZE)
    path = folder / f"{stored_name(name, writer)}.onnx.gz"
    path.write_bytes(gzip.compress(copy.SerializeToString(deterministic=True), 9, mtime=0))
    return path


def main() -> None:
    """Write the decoders whose names begin with what is given, or all."""
    wanted = tuple(sys.argv[1:]) or ("",)
    for name in DECODERS:
        for writer, write in WRITERS.items():
            is_elsewhere = name in ELSEWHERE and writer in ("classic", "dynamo")
            if f"{name}.{writer}".startswith(wanted) and not is_elsewhere:
                path = store(write(name), name, writer)
                print(f"{path.name}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
