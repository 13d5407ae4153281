"""Sessions of any model: one in which nothing can gain is onnxruntime's, at once, and loads no compiler."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnxruntime
from typing_extensions import Unpack

from ..foundation.choices import Choices
from ..foundation.log import LOG
from .counters import Name, count, counted_into
from .elf.loading import NOT_LOADED, loads_libraries
from .model_looks import NOTHING_TAKEN, why_dense
from .reported_session import ReportedSession
from .session_arguments import OtherArguments, Providers, SessionArguments, Sizes

if TYPE_CHECKING:
    from ..frontend.import_model import Source


def session(
    path_or_bytes: "Source",
    sess_options: onnxruntime.SessionOptions | None = None,
    providers: Providers | None = None,
    provider_options: Sequence[dict[Any, Any]] | None = None,
    *,
    rows: int = 0,
    sizes: Sequence[Sizes] = (),
    choices: str | os.PathLike[str] | Choices | None = None,
    count_calls: bool = False,
    **others: Unpack[OtherArguments],
) -> ReportedSession:
    """Return a session of onnxruntime with our kernels inside; it takes what InferenceSession takes, and four more.

    A model without sparse networks is optimized first, for `rows` as `optimize` does it, and kept in the user's cache;
    one whose weights are dense is left as it is.

    Sparse convolutions on images of any size have code for one size each, which is made in the background when a call
    of that size comes: onnxruntime serves it until then. `sizes`, each of free axes by name, have code when the
    session is returned: `sizes=[{"height": 224, "width": 224}]`.

    `choices` is a file of `redpebble explain --serve`, with kernels of layers and passes to leave out.

    `redpebble_report` of the session says where its code came from; with `count_calls` also what its calls took.

    Raises:
        ModelError: the model is unreadable.
        TypeError: there is no such argument.
        OSError: `choices` cannot be read.
        PassFailedException: a layer cannot have its kernel of `choices` on this CPU.
        ValueError: rows are negative, or there is no such free axis, or code waits for one whose size is not stated; or
            `choices` hold something else, or name no layer of the model.
    """
    arguments = SessionArguments(sess_options, providers, provider_options, others, count_calls)
    model, chosen = _bytes_of(path_or_bytes), Choices.read(choices)
    opened: dict[Name, float] = {}
    with counted_into(opened):
        made = _session(model, arguments, rows, sizes, chosen)
    made.opened = opened
    return made


def _session(
    model: "Source", arguments: SessionArguments, rows: int, sizes: Sequence[Sizes], choices: Choices
) -> ReportedSession:
    stored = os.fspath(model) if isinstance(model, str | os.PathLike) else model
    # negative rows are refused where what they may be is known
    why = _why_nothing_gains(stored) if isinstance(stored, str | bytes) and rows >= 0 else ""
    if isinstance(stored, str | bytes) and why:
        try:
            made = arguments.make(stored)
        except Exception:
            LOG.debug("onnxruntime does not take the model as it is")
        else:
            LOG.warning(NOTHING_TAKEN, why)
            count("models_left")
            if sizes:
                from .sized_session import prepare

                prepare(made, sizes)
            return made
    from .session import optimized_session

    return optimized_session(model, arguments, rows=rows, sizes=sizes, choices=choices)


def _why_nothing_gains(model: str | bytes) -> str:
    return why_dense(model) if loads_libraries() else NOT_LOADED


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
