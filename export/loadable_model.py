"""A model in memory as onnxruntime loads it."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir

from redpebble.export.save_model import save_model


@contextmanager
def loadable(model: ir.Model) -> Generator[str | bytes]:
    """Yield the path of a file, which has no limit of 2 GB; bytes where no folder for temporary files can be written.

    What onnxruntime maps of the file stays when the name is gone.

    Raises:
        ValueError: the bytes are more than 2 GB.
    """
    try:
        temporary = tempfile.TemporaryDirectory()
    except FileNotFoundError:
        whole = ir.external_data.load_to_model(model.clone())
        yield ir.to_proto(whole).SerializeToString()
        return
    with temporary as folder:
        path = Path(folder) / "model.onnx"
        save_model(model, path)
        yield os.fspath(path)
