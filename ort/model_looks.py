"""Questions to a model that nobody has read: whether it has networks of ours, and whether anything in it may gain.

They are answered by a look at its bytes, which takes a fraction of the time of reading it, and no compiler.
"""

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..export.sparse_networks.node_format import DOMAIN
from ..frontend.reading.streamed_graph import streamed_graph
from ..frontend.sparse_weights import graph_of, reason_of_density

if TYPE_CHECKING:
    import onnx_ir

    from ..frontend.import_model import Source


def holds_networks(model: "Source") -> bool:
    """Return whether a model has nodes of ours; a file is searched for our domain, which is faster than reading it."""
    if isinstance(model, bytes):
        return DOMAIN.encode() in model
    if isinstance(model, str | os.PathLike):
        try:
            with Path(model).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(DOMAIN.encode()) >= 0
        except (OSError, TypeError, ValueError):
            return False
    return _lists_our_domain(model)


def _lists_our_domain(model: object) -> bool:
    import onnx
    import onnx_ir

    match model:
        case onnx.ModelProto():
            return any(entry.domain == DOMAIN for entry in model.opset_import)
        case onnx_ir.Model():
            return DOMAIN in model.opset_imports
        case _:
            return False


NOTHING_TAKEN: Final = "redpebble.session is as fast as onnxruntime here: %s; see why-not-faster"
"""The warning of a session in which no code of ours runs."""


def takes_dense_codes() -> bool:
    """Return whether this machine has kernels for weights of four bits that gain whatever their zeros."""
    from ..runtime.jit import host_target

    return host_target().places_bytes


def why_dense(model: "str | os.PathLike[str] | bytes | onnx_ir.Model") -> str:
    """Return why no layer of a model can gain, by a look at the weights; empty where one may."""
    try:
        match model:
            case bytes():
                graph = streamed_graph(model)
            case str() | os.PathLike():
                graph = streamed_graph(Path(model))
            case _:
                graph = graph_of(model)
        return reason_of_density(graph, takes_dense_codes)
    except (KeyError, OSError, TypeError, ValueError):
        return ""  # the reader of the model reports the error
