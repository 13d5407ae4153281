"""Models in versions so old, or so new, that nothing in them is known: they are passed on as they are."""

import os

import onnx
import onnx_ir

from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import Source
from redpebble.frontend.reading.model_source import read_model


def read_or_load_unchecked(source: Source) -> onnx_ir.Model:
    """Return a model as the frontend reads it, or as it is where that does not cover it.

    Raises:
        InvalidModelError: the model is unreadable or contradicts itself.
    """
    try:
        return read_model(source)
    except UnsupportedModelError:
        return load_unchecked(source)


def load_unchecked(source: Source) -> onnx_ir.Model:
    """Return a model that the frontend has read but does not cover, as it is."""
    match source:
        case onnx_ir.Model():
            return source.clone()
        case onnx.ModelProto():
            return onnx_ir.from_proto(source)
        case bytes():
            return onnx_ir.from_proto(onnx.ModelProto.FromString(source))
        case _:
            # onnx-ir leaves the parameter of PathLike open, which is all that is unknown here
            return onnx_ir.load(os.fspath(source))  # pyright: ignore[reportUnknownMemberType]
