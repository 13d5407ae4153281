# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
"""A trained encoder of torch as the zoo stores it (`archive`), and back."""

from __future__ import annotations

import numpy as np
import torch

from .archive import compressed, read, without_zeros
from .encoder import LINEARS, Encoder


def pack(encoder: Encoder, *, precision: int = 8) -> bytes:
    """Everything of the encoder but its embeddings; `precision=16` stores weights as half floats, not as codes."""
    matrices: dict[str, np.ndarray] = {}
    vectors: dict[str, np.ndarray] = {}
    for number, layer in enumerate(encoder.layers):
        for name, values in layer.state_dict().items():
            array = values.float().cpu().numpy()
            (matrices if array.ndim == 2 else vectors)[f"{number}.{name}"] = array
    return compressed(len(encoder.layers), without_zeros(matrices, vectors, halves=precision == 16))


def unpack(data: bytes, base: dict[str, np.ndarray]) -> Encoder:
    """The encoder that `pack` took, on the embeddings of the base."""
    layers = read(data)
    encoder = Encoder(base, list(range(len(layers))))
    for layer, arrays in zip(encoder.layers, layers, strict=True):
        layer.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return encoder


def sparsity(encoder: Encoder) -> float:
    """Share of the linear layers' weights that is 0."""
    weights = [getattr(layer, name).weight for layer in encoder.layers for name in LINEARS]
    return 1 - sum(int((w != 0).sum()) for w in weights) / sum(w.numel() for w in weights)
