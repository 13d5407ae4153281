"""A trained SmolLM2 as its difference from the base: which weights stay, and a product of low rank for each layer.

Stored are mean squares of each layer's inputs, upper halves of floats: the weights with the largest weight^2 x mean
square stay (Wanda), as many in each output or two of four. Beside them lie the codes of the factors, of the gains of
outputs, and the gains of normalizations. Masks are the same on each machine: products of single floats, ties in order.

The codes of the factors are small integers in no order: a Huffman code takes 3.1 bits each, one that looks for what
comes again 3.8.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compressed_arrays import arrays_of, compressed_arrays
from ..sentences.archive import CODER

Array = NDArray[np.float32]

PARTS: Final = ("left", "left_steps", "right", "right_steps", "gain")
"""Arrays of a layer."""

FACTORS: Final = ("left", "right")
"""Arrays of a layer whose codes are stored together."""

SHARED: Final = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
"""Layers that read what another one of their kind reads."""


class Stored(NamedTuple):
    """An archive: two of four or the share of weights that stay, and arrays by name."""

    density: float
    is_of_four: bool
    gain_step: float
    arrays: Mapping[str, NDArray[Any]]


def leader_of(name: str) -> str:
    """The layer whose inputs are stored for a layer."""
    place, _, kind = name.rpartition(".")
    return f"{place}.{SHARED.get(kind, kind)}"


def upper_halves(values: Array) -> NDArray[np.uint16]:
    """Floats without the lower half of their bits."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def from_upper_halves(halves: NDArray[np.uint16]) -> Array:
    """Floats of their upper halves."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def mask_of(weight: Array, squares: Array, density: float, *, is_of_four: bool) -> NDArray[np.bool_]:
    """The weights [outputs, inputs] that stay, by mean squares of inputs; of equal ones the first."""
    scores = np.square(weight) * squares
    rows = scores.reshape(-1, 4) if is_of_four else scores
    kept = 2 if is_of_four else max(1, round(density * weight.shape[1]))
    order = np.argsort(-rows, axis=1, kind="stable")[:, :kept]
    mask = np.zeros(rows.shape, bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask.reshape(weight.shape)


def pack(stored: Stored) -> bytes:
    """The bytes of a file."""
    facts = np.array([stored.density, stored.is_of_four, stored.gain_step])
    factors = [name for name in stored.arrays if name.endswith(FACTORS)]
    huffman = zlib.compressobj(level=9, wbits=-zlib.MAX_WBITS, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    codes = huffman.compress(b"".join(stored.arrays[name].astype(np.int8).tobytes() for name in factors))
    held = np.frombuffer(codes + huffman.flush(), np.uint8)
    others = {name: array for name, array in stored.arrays.items() if name not in factors}
    return compressed_arrays({"facts": facts, "factors": np.array(factors), "codes": held, **others}, filters=CODER)


def read(data: bytes) -> Stored:
    """Return the archive of a file."""
    arrays = arrays_of(data)
    density, is_of_four, gain_step = map(float, arrays.pop("facts"))
    codes = np.frombuffer(zlib.decompress(arrays.pop("codes").tobytes(), -zlib.MAX_WBITS), np.int8)
    start = 0
    for name in map(str, arrays.pop("factors")):
        layer, _, side = name.rpartition(".")
        ranks = arrays[f"{layer}.{side}_steps"].size
        outputs, inputs = arrays[f"{layer}.gain"].size, arrays[f"{leader_of(layer)}.squares"].size
        shape = (outputs, ranks) if side == "left" else (ranks, inputs)
        arrays[name] = codes[start : start + shape[0] * shape[1]].reshape(shape)
        start += arrays[name].size
    return Stored(density, bool(is_of_four), gain_step, arrays)


def weights_of(stored: Stored, base: Mapping[str, Array]) -> dict[str, Array]:
    """The weights that the archive changes, by their names in transformers; not rounded to four bits yet."""
    with ThreadPoolExecutor() as threads:
        names = [key.removesuffix(".left") for key in stored.arrays if key.endswith(".left")]
        weights = threads.map(partial(_weight, stored, base), names)
        found = dict(zip((f"{name}.weight" for name in names), weights, strict=True))
    norms = {key.removesuffix(".norm"): one for key, one in stored.arrays.items() if key.endswith(".norm")}
    return found | {f"{name}.weight": one.astype(np.float32) for name, one in norms.items()}


def _weight(stored: Stored, base: Mapping[str, Array], name: str) -> Array:
    weight = base[f"{name}.weight"]
    arrays = {part: stored.arrays[f"{name}.{part}"].astype(np.float32) for part in PARTS}
    squares = from_upper_halves(stored.arrays[f"{leader_of(name)}.squares"])
    mask = mask_of(weight, squares, stored.density, is_of_four=stored.is_of_four)
    left, right = (arrays[side] * arrays[f"{side}_steps"] for side in ("left", "right"))
    gain = 1 + arrays["gain"] * np.float32(stored.gain_step)
    return ((weight * gain[:, None] + left @ right) * mask).astype(np.float32, copy=False)
