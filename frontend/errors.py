"""Errors of a model: every message is one line that names the node, the value, and what is accepted."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ..foundation.errors import RedpebbleError

if TYPE_CHECKING:
    # what is in the cache is found without a library that reads models
    import onnx_ir


class ModelError(RedpebbleError):
    """The model cannot be compiled; the message says where and why."""


class InvalidModelError(ModelError):
    """The model is unreadable or contradicts itself or the ONNX standard."""


class UnsupportedModelError(ModelError):
    """The model is valid, but uses something that is not covered here."""


class CodesError(UnsupportedModelError):
    """A node yields codes of a quantized network, which are nothing by themselves: their reader says what is amiss."""


class UnknownSizesError(UnsupportedModelError):
    """A node reads an image of unknown sizes; a caller who chooses them can state them."""


class TooManyNodesError(UnsupportedModelError):
    """The functions of a model make more nodes than are looked at one by one, in whatever way it is to be covered."""


class NothingToGainError(UnsupportedModelError):
    """The model is valid, and to leave it as it is is better than to go through all of it."""

    def __init__(self, message: str, model: "onnx_ir.Model") -> None:
        """Keep the model, which was read as it is."""
        super().__init__(message)
        self.model = model


LONGEST: Final = 300
"""Characters of another library's message that become part of ours."""


def first_line(error: BaseException) -> str:
    """Return the first line of the innermost cause of another library's error, as part of a message of ours."""
    seen = list[BaseException]()
    # libraries may raise an error from itself
    while error.__cause__ is not None and error not in seen:
        seen.append(error)
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".")[:LONGEST] if lines else type(error).__name__


@contextmanager
def within_limits() -> Generator[None]:
    """Let a model that asks for more memory than there is, or is nested too deeply, be a model's fault.

    Raises:
        UnsupportedModelError: it is.
    """
    try:
        yield
    except MemoryError as error:
        raise UnsupportedModelError(f"the model takes more memory than there is: {first_line(error)}") from error
    except RecursionError as error:
        raise UnsupportedModelError("the model is nested more deeply than can be followed") from error
