"""What can be wrong with a model: every message is one line that names the node, the value, and what is accepted."""

from redpebble.foundation.errors import RedpebbleError


class ModelError(RedpebbleError):
    """The model cannot be compiled; the message says where and why."""


class InvalidModelError(ModelError):
    """The model is unreadable or contradicts itself or the ONNX standard."""


class UnsupportedModelError(ModelError):
    """The model is valid, but uses something that is not covered here."""


def first_line(error: BaseException) -> str:
    """Return the first line of the innermost cause of another library's error, as part of a message of ours."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
