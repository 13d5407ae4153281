"""Files beside a model that hold its weights: each lies inside the model's folder, and is as long as it must be."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

import onnx_ir

from redpebble.frontend.errors import InvalidModelError
from redpebble.frontend.reading.held_tensors import held_tensors
from redpebble.frontend.reading.lazy_sparse_tensor import SparseTensor

FILES: Final = "redpebble.files"


def set_folder(model: onnx_ir.Model, folder: str) -> None:
    """Let the tensors of a model that lie in files lie in `folder`."""
    for _, tensor in held_tensors(model):
        if isinstance(tensor, onnx_ir.ExternalTensor):
            cast("_Stored", tensor).base_dir = folder


def files_of(model: onnx_ir.Model) -> list[str]:
    """Return the names of the files that tensors of a model lie in, each once."""
    tensors = (tensor for _, tensor in held_tensors(model))
    parts = (part for tensor in tensors for part in (tensor.parts if isinstance(tensor, SparseTensor) else (tensor,)))
    names = {cast("_Stored", part).location for part in parts if isinstance(part, onnx_ir.ExternalTensor)}
    return sorted(names.union(_remembered(model)))


def _remembered(model: onnx_ir.Model) -> Sequence[str]:
    """Return what `remember_files` has noted."""
    noted = cast("Mapping[str, Sequence[str]]", model.graph.meta)
    return noted.get(FILES, ())


def remember_files(model: onnx_ir.Model, names: Sequence[str]) -> None:
    """Note on `model`, where no file will show it, that values were read from these files before."""
    model.graph.meta[FILES] = names


class _Stored(Protocol):
    """Location of an `onnx_ir.ExternalTensor` in its file; its own annotations leave the kind of path open."""

    base_dir: str
    location: str
    path: str
    offset: int | None
    length: int | None
    nbytes: int


def check_file(name: str, tensor: onnx_ir.ExternalTensor) -> str:
    """Check that the file is there, large enough, and does not lie outside the model's folder; return its name.

    Links are followed.

    Raises:
        InvalidModelError: names the tensor and the file.
    """
    stored = cast("_Stored", tensor)
    if not stored.base_dir:
        raise InvalidModelError(f"tensor {name}: values in file {_quoted(stored)}, but the model has no folder")
    if "\0" in stored.location:
        raise InvalidModelError(f"tensor {name}: file {_quoted(stored)} has a character that no name has")
    folder, path = Path(stored.base_dir).resolve(), Path(stored.path).resolve()
    if os.path.isabs(stored.location) or not path.is_relative_to(folder):
        raise InvalidModelError(f"tensor {name}: file {_quoted(stored)} leaves the model's folder")
    if not path.is_file():
        raise InvalidModelError(f"tensor {name}: file {_quoted(stored)} is missing")
    if stored.length is not None and stored.length != stored.nbytes:
        raise InvalidModelError(f"tensor {name}: {stored.length} bytes stored, its shape needs {stored.nbytes}")
    offset, size = stored.offset or 0, path.stat().st_size
    if offset < 0:
        raise InvalidModelError(f"tensor {name}: offset {offset} in file {_quoted(stored)}, accepted is 0 or more")
    if size < offset + stored.nbytes:
        raise InvalidModelError(
            f"tensor {name}: file {_quoted(stored)} has {size} bytes, expected {offset + stored.nbytes}"
        )
    return stored.location


def _quoted(stored: _Stored) -> str:
    return repr(stored.location)
