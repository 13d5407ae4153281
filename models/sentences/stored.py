# pyright: basic, reportMissingImports=false
"""A trained encoder as its nonzeros alone: a bit per weight, a byte per nonzero; embeddings stay in the base package.

Codes are int8 with one scale per output, biases and norms float32. `precision=16` stores half floats instead.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Sequence

import numpy as np
import torch

from .encoder import LINEARS, Encoder


def pack(encoder: Encoder, *, precision: int = 8) -> bytes:
    """Everything of the encoder but its embeddings; weights that are 0 take a bit each."""
    arrays: dict[str, np.ndarray] = {"layers": np.array(len(encoder.layers))}
    for number, layer in enumerate(encoder.layers):
        for name, values in layer.state_dict().items():
            key, array = f"{number}.{name}", values.float().cpu().numpy()
            if array.ndim != 2:
                arrays[key] = array
                continue
            kept = array != 0
            arrays[f"{key}.kept"] = np.packbits(kept)
            if precision == 8:
                scale = np.maximum(abs(array).max(1), 1e-30) / 127
                codes = np.rint(array / scale[:, None]).astype(np.int8)
                arrays[f"{key}.scale"], arrays[f"{key}.codes"] = scale.astype(np.float32), codes[kept]
            else:
                planes = np.ascontiguousarray(array[kept].astype(np.float16)).view(np.uint8)
                arrays[f"{key}.half"] = np.ascontiguousarray(planes.reshape(-1, 2).T)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return lzma.compress(buffer.getvalue(), preset=1)


def unpack(data: bytes, base: dict[str, np.ndarray]) -> Encoder:
    """The encoder that `pack` took, on the embeddings of the base."""
    with np.load(io.BytesIO(lzma.decompress(data))) as archive:
        arrays = {name: archive[name] for name in archive.files}
    encoder = Encoder(base, list(range(int(arrays["layers"]))))
    for number, layer in enumerate(encoder.layers):
        state = layer.state_dict()
        for name, values in state.items():
            key = f"{number}.{name}"
            array = arrays[key] if key in arrays else _matrix(arrays, key, tuple(values.shape))
            state[name] = torch.from_numpy(array)
        layer.load_state_dict(state)
    return encoder


def _matrix(arrays: dict[str, np.ndarray], key: str, shape: Sequence[int]) -> np.ndarray:
    kept = np.unpackbits(arrays[f"{key}.kept"], count=shape[0] * shape[1]).reshape(shape).astype(bool)
    matrix = np.zeros(tuple(shape), np.float32)
    if f"{key}.codes" in arrays:
        matrix[kept] = arrays[f"{key}.codes"]
        return matrix * arrays[f"{key}.scale"][:, None]
    matrix[kept] = np.ascontiguousarray(arrays[f"{key}.half"].T).view(np.float16)[:, 0]
    return matrix


def sparsity(encoder: Encoder) -> float:
    """Share of the linear layers' weights that is 0."""
    weights = [getattr(layer, name).weight for layer in encoder.layers for name in LINEARS]
    return 1 - sum(int((w != 0).sum()) for w in weights) / sum(w.numel() for w in weights)
