"""A digest of a model's content, external data included: the key under which its native code is kept."""

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..frontend.errors import ModelError
from ..frontend.reading.model_file import read_file
from ..runtime.store.cache import Stamp, recalled_digest, remember_digest, stamp

if TYPE_CHECKING:
    # what is in the cache is found without a library that reads models
    import onnx

    from ..frontend.import_model import Source


def model_digest(source: "Source", memory: Path | None = None) -> bytes | None:
    """Return the digest, or None for a model that has no bytes of its own to go by (then nothing is cached).

    Digests of files are remembered in the folder `memory`.
    """
    match source:
        case bytes():
            return None if _mentions_external_data(source) else _hash(source).digest()
        case str() | os.PathLike():
            try:
                return _digest_of_path(Path(os.fspath(source)), memory)
            except (
                OSError,
                TypeError,
                ValueError,
                ModelError,
            ):  # what is wrong with the model is said by the frontend, which reads it next
                return None
        case _:
            return _digest_of_object(source)


def _hash(data: bytes = b"") -> hashlib.blake2b:
    """Return the hash of content: as safe as SHA-256, in little more than half of its time where CPUs have no help."""
    return hashlib.blake2b(data, digest_size=32)


def _digest_of_object(source: object) -> bytes | None:
    import onnx

    return _digest_of_proto(source) if isinstance(source, onnx.ModelProto) else None


def _digest_of_proto(model: "onnx.ModelProto") -> bytes | None:
    from google.protobuf.message import EncodeError

    try:
        return model_digest(model.SerializeToString(deterministic=True))
    except (EncodeError, ValueError):
        return None


def _digest_of_path(path: Path, memory: Path | None) -> bytes:
    """Return the digest of a file as it was remembered, or work it out and remember it."""
    if memory is None:
        return _digest_of_files(path)[0]
    name = f"digest-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:40]}"
    known = recalled_digest(memory, name, lambda names: _stamps(path, names[1:]))
    if known is not None:
        return known
    begun = time.time_ns()
    digest, external = _digest_of_files(path)
    remember_digest(memory, name, digest, _stamps(path, external), begun)
    return digest


def _stamps(path: Path, external: Sequence[str]) -> list[Stamp]:
    """Return the stamps of a model's files, which change with them, the model itself first."""
    return [stamp(name, path.parent / name) for name in (path.name, *external)]


def _digest_of_files(path: Path) -> tuple[bytes, list[str]]:
    """Return the digest of a model file and of the files that hold its external data, and the names of those.

    Raises:
        OSError: one cannot be read.
        ModelError: the model cannot be read.
    """
    data = read_file(path)
    digest = _hash(data)
    if not _mentions_external_data(data):
        return digest.digest(), []
    from ..frontend.reading.model_source import external_files

    external = external_files(path)
    for name in external:
        with (path.parent / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, _hash).digest())
    return digest.digest(), external


def _mentions_external_data(data: bytes) -> bool:
    """Return whether a model may have external data: "location" is the key under which a tensor names its file."""
    return b"location" in data
