"""A trained encoder as its nonzeros alone: a bit per weight, a code per nonzero; embeddings stay in the base package.

Codes are whole numbers of a step, one for each output: a small share of the size of its nonzeros, so that an output
with one large weight is not coarse everywhere. Most codes are small, and a coder of single bytes without contexts
takes 6 to 7 bits for one.
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..compressed_arrays import arrays_of, compressed_arrays

STEP: Final = 1 / 16
"""Share of the root mean square of an output's nonzeros."""

CODER: Final[list[dict[str, Any]]] = [
    {"id": lzma.FILTER_LZMA2, "lc": 0, "lp": 0, "pb": 0, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3, "nice_len": 273}
]
"""No contexts: neighbouring codes tell nothing of each other."""

THEIR_NAMES: Final = {
    "mixed": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "wide": "intermediate.dense",
    "narrow": "output.dense",
    "norm2": "output.LayerNorm",
}
"""Name of a part of a layer here -> in the base package; `qkv` is its query, key and value."""

Arrays = dict[str, NDArray[Any]]


def without_zeros(matrices: Mapping[str, NDArray[np.float32]], vectors: Arrays, *, halves: bool = False) -> Arrays:
    """Matrices [outputs, inputs] as bits and codes, or bits and half floats; vectors as half floats."""
    kept = {name: array != 0 for name, array in matrices.items()}
    arrays: Arrays = {f"{name}.kept": np.packbits(mask) for name, mask in kept.items()}
    for name, array in matrices.items():
        nonzeros = array[kept[name]]
        if halves:
            planes = np.ascontiguousarray(nonzeros.astype(np.float16)).view(np.uint8)
            arrays[f"{name}.half"] = np.ascontiguousarray(planes.reshape(-1, 2).T)
            continue
        square = np.square(array).sum(1) / np.maximum(1, kept[name].sum(1))
        step = np.maximum(STEP * np.sqrt(square), np.maximum(abs(array).max(1), 1e-30) / 127).astype(np.float32)
        arrays[f"{name}.step"] = step
        arrays[f"{name}.codes"] = np.rint(array / step[:, None]).astype(np.int8)[kept[name]]
    return arrays | {name: array.astype(np.float16) for name, array in vectors.items()}


def compressed(layers: int, arrays: Arrays) -> bytes:
    """The bytes of a file."""
    return compressed_arrays({"layers": np.array(layers), **arrays}, filters=CODER)


def read(data: bytes) -> list[dict[str, NDArray[np.float32]]]:
    """For each layer, name in the layer -> array: `qkv.weight` [3 width, width], `qkv.bias`, ... `norm2.bias`."""
    arrays = arrays_of(data)
    layers: list[dict[str, NDArray[np.float32]]] = [{} for _ in range(int(arrays.pop("layers")))]
    parts = ("step", "codes", "kept", "half")
    for key in dict.fromkeys(key.rpartition(".")[0] if key.endswith(parts) else key for key in arrays):
        number, _, name = key.partition(".")
        array = arrays[key].astype(np.float32) if key in arrays else _matrix(arrays, key)
        layers[int(number)][name] = array
    return layers


def _matrix(arrays: Arrays, key: str) -> NDArray[np.float32]:
    outputs = len(arrays[f"{key.removesuffix('weight')}bias"])
    kept = np.unpackbits(arrays[f"{key}.kept"])
    kept = kept[: len(kept) // outputs * outputs].reshape(outputs, -1).astype(bool)
    matrix = np.zeros(kept.shape, np.float32)
    if f"{key}.codes" in arrays:
        matrix[kept] = arrays[f"{key}.codes"]
        return matrix * arrays[f"{key}.step"][:, None]
    matrix[kept] = np.ascontiguousarray(arrays[f"{key}.half"].T).view(np.float16)[:, 0]
    return matrix
