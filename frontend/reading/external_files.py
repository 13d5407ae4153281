"""Files beside a model that hold its weights: each lies inside the model's folder, and is as long as it must be.

A model whose own name is a link has two folders, that of the link and that of the file. Such is Hugging Face's cache:
`snapshots/X/model.onnx` and `snapshots/X/model.onnx_data` are links into `blobs`.
"""

import os
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

import onnx_ir

from ..errors import InvalidModelError
from .held_tensors import held_tensors
from .lazy_sparse_tensor import SparseTensor

FILES: Final = "redpebble.files"

NAMED: Final = "redpebble.name that the model has for a file"

LINKED: Final = "redpebble.folder of the file that the model's name is a link to"


def set_folder(model: onnx_ir.Model, folder: str, linked: str = "") -> None:
    """Let the tensors of a model that lie in files lie in `folder`, or be links from there into the folder `linked`."""
    for _, tensor in held_tensors(model):
        if isinstance(tensor, onnx_ir.ExternalTensor):
            cast("_Stored", tensor).base_dir = folder
            cast("_Stored", tensor).meta[LINKED] = linked


def files_of(model: onnx_ir.Model) -> list[str]:
    """Return the names of the files that tensors of a model lie in, each once."""
    tensors = (tensor for _, tensor in held_tensors(model))
    parts = (part for tensor in tensors for part in (tensor.parts if isinstance(tensor, SparseTensor) else (tensor,)))
    names = {_name(cast("_Stored", part)) for part in parts if isinstance(part, onnx_ir.ExternalTensor)}
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

    meta: MutableMapping[str, object]
    base_dir: str
    location: str
    path: str
    offset: int | None
    length: int | None
    nbytes: int


def check_file(name: str, tensor: onnx_ir.ExternalTensor) -> str:
    """Check that the file is there, large enough, and does not lie outside the model's folder; return its name.

    Links are followed, into the folder of the model's own file as well where the model's name is a link.

    Raises:
        InvalidModelError: names the tensor and the file.
    """
    stored = cast("_Stored", tensor)
    if not stored.base_dir:
        raise InvalidModelError(f"tensor {name}: values in file {_quoted(stored)}, but the model has no folder")
    if "\0" in stored.location:
        raise InvalidModelError(f"tensor {name}: file {_quoted(stored)} has a character that no name has")
    path = Path(stored.path).resolve()
    is_inside, is_linked = path.is_relative_to(Path(stored.base_dir).resolve()), _is_linked(stored, path)
    if os.path.isabs(stored.location) or not (is_inside or is_linked):
        raise InvalidModelError(f"tensor {name}: file {_quoted(stored)} leaves the model's folder")
    if not path.is_file():
        raise InvalidModelError(f"tensor {name}: file {_quoted(stored)} is missing")
    if stored.length is not None and stored.length != stored.nbytes:
        raise InvalidModelError(f"tensor {name}: {stored.length} bytes stored, its shape needs {stored.nbytes}")
    offset, size = stored.offset or 0, path.stat().st_size
    if offset < 0:
        raise InvalidModelError(f"tensor {name}: expected offset 0 or more, got {offset} in file {_quoted(stored)}")
    if size < offset + stored.nbytes:
        raise InvalidModelError(
            f"tensor {name}: expected {offset + stored.nbytes} bytes in file {_quoted(stored)}, got {size}"
        )
    if is_linked and not is_inside:
        _read_from(tensor, path, stored.location)
    return _name(stored)


def _name(stored: _Stored) -> str:
    """Return the name of the file, relative to the model's folder."""
    return str(stored.meta.get(NAMED, stored.location))


def _read_from(tensor: onnx_ir.ExternalTensor, path: Path, named: str) -> None:
    """Let a tensor read the file that its name is a link to: onnx-ir follows none that leaves the folder."""
    stored = cast("_Stored", tensor)
    tensor.__init__(  # pyright: ignore[reportUnknownMemberType]
        path.name,
        stored.offset,
        stored.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name or "",
        metadata_props=tensor.metadata_props,
        base_dir=str(path.parent),
    )
    stored.meta[NAMED] = named


def _is_linked(stored: _Stored, path: Path) -> bool:
    """Return whether a name in the model's folder is a link to a file beside that to which the model's name is one."""
    linked = str(stored.meta.get(LINKED, ""))
    named = Path(os.path.normpath(stored.path))
    return bool(linked) and path.parent == Path(linked) and named.is_relative_to(os.path.normpath(stored.base_dir))


def _quoted(stored: _Stored) -> str:
    return repr(stored.location)
