"""Sessions of any model: one in which nothing can gain is onnxruntime's, at once, and loads no compiler."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnxruntime

from redpebble.foundation.log import LOG
from redpebble.ort.model_looks import NOTHING_TAKEN, why_dense

if TYPE_CHECKING:
    from redpebble.frontend.import_model import Source


def session(
    path_or_bytes: "Source",
    sess_options: onnxruntime.SessionOptions | None = None,
    providers: Sequence[str] | None = None,
    *,
    rows: int = 0,
) -> onnxruntime.InferenceSession:
    """Return a session of onnxruntime with our kernels inside; arguments are named as those of InferenceSession.

    A model without sparse networks is optimized first, for `rows` as `optimize` does it, and kept in the user's cache;
    one whose weights are dense is left as it is. One with sparse convolutions on images of any size is made ready for a
    size when it is first called with that.

    Raises:
        ModelError: the model is unreadable.
        ValueError: rows are negative.
    """
    model = _bytes_of(path_or_bytes)
    stored = os.fspath(model) if isinstance(model, str | os.PathLike) else model
    # negative rows are refused where what they may be is known
    why = why_dense(stored) if isinstance(stored, str | bytes) and rows >= 0 else ""
    if isinstance(stored, str | bytes) and why:
        try:
            made = onnxruntime.InferenceSession(stored, sess_options, providers=providers or ["CPUExecutionProvider"])
        except Exception:
            LOG.debug("onnxruntime does not take the model as it is")
        else:
            LOG.warning(NOTHING_TAKEN, why)
            return made
    from redpebble.ort.session import optimized_session

    return optimized_session(model, sess_options, providers, rows=rows)


def _bytes_of(model: "Source") -> "Source":
    """Return a message of protobuf as bytes, any other model as it is."""
    if "onnx" not in sys.modules:  # without which there is no such message
        return model
    import onnx

    if not isinstance(model, onnx.ModelProto):
        return model
    try:
        return model.SerializeToString()
    except Exception:
        return model
