"""Faults of libraries that read a model: they are the model's."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from google.protobuf.message import Error as ProtobufError
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError
from xdsl.utils.exceptions import VerifyException

from ..errors import InvalidModelError, ModelError, first_line, within_limits

FAULTS: Final = (
    # ONNX's code in C++ raises RuntimeError, too, and so do onnx-ir's SerdeError and PassError
    *(ProtobufError, ValidationError, InferenceError, VerifyException, RuntimeError),
    # numbers, names and files that are not what Python and numpy expect
    *(ArithmeticError, LookupError, OSError, TypeError, ValueError),
)
"""Errors that libraries raise about a model; any other one is a fault of ours, such as a name that is not there."""


@contextmanager
def reading() -> Generator[None]:
    """Let what libraries raise about a model that is read be the model's fault.

    Raises:
        InvalidModelError: what a library says of it.
        UnsupportedModelError: the model asks for too much.
    """
    with within_limits():
        try:
            yield
        except (ModelError, RecursionError):
            raise
        except FAULTS as error:
            if (own := _own_cause(error)) is not None:
                raise type(own)(str(own)) from error
            raise InvalidModelError(f"the model is malformed: {first_line(error)}") from error


def _own_cause(error: BaseException) -> ModelError | None:
    """Return the error of ours around which another library put its own."""
    cause, seen = error, list[BaseException]()
    while not isinstance(cause, ModelError):
        seen.append(cause)
        following = cause.__cause__ or cause.__context__
        if following is None or following in seen:
            return None
        cause = following
    return cause
