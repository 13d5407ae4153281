"""A digest of a model's content, external data included: the key under which its native code is kept."""

import hashlib
import os
from pathlib import Path

import onnx
import onnx_ir
from google.protobuf.message import EncodeError

from redpebble.frontend.errors import ModelError
from redpebble.frontend.importing import Source
from redpebble.frontend.reading import read_model


def model_digest(source: Source) -> bytes | None:
    """Return the digest, or None for a model that has no bytes of its own to go by (then nothing is cached)."""
    match source:
        case bytes():
            return None if _mentions_external_data(source) else hashlib.sha256(source).digest()
        case onnx.ModelProto():
            return _digest_of_proto(source)
        case onnx_ir.Model():
            return None
        case _:
            return _digest_of_file(Path(os.fspath(source)))


def _digest_of_proto(model: onnx.ModelProto) -> bytes | None:
    try:
        return model_digest(model.SerializeToString(deterministic=True))
    except (EncodeError, ValueError):
        return None


def _digest_of_file(path: Path) -> bytes | None:
    """Return the digest of a model file and of the files that hold its external data, None where one is unreadable.

    What is wrong with such a model is said by the frontend, which reads it next.
    """
    try:
        data = path.read_bytes()
        digest = hashlib.sha256(data)
        for name in _external_files(path) if _mentions_external_data(data) else ():
            with (path.parent / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    except (OSError, ModelError):
        return None
    return digest.digest()


def _mentions_external_data(data: bytes) -> bool:
    """Return whether a model may have external data: "location" is the key under which a tensor names its file."""
    return b"location" in data


def _external_files(path: Path) -> list[str]:
    """Return the files that a model's tensors lie in, each once, relative to the model's folder."""
    tensors = (value.const_value for graph in read_model(path).graphs() for value in graph.initializers.values())
    names: set[str] = set()
    for tensor in tensors:
        if isinstance(tensor, onnx_ir.ExternalTensor):
            # onnx-ir leaves the parameter of PathLike open, which is all that is unknown here
            names.add(str(tensor.location))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return sorted(names)
