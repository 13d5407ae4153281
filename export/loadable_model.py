"""A model in memory as onnxruntime loads it."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir

from .save_model import model_bytes, save_model


@contextmanager
def loadable(model: ir.Model) -> Generator[str | bytes]:
    """Yield a model's bytes; the path of a temporary file where it is larger than 2 GB, which bytes may not be.

    Bytes that onnxruntime maps of the file stay when the name is gone.

    Raises:
        OSError: there is no folder for a temporary file, which is needed.
    """
    content = model_bytes(model)
    if content is not None:
        yield content
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        save_model(model, path)
        yield os.fspath(path)
