"""Arguments of a session beside its model: those of onnxruntime's `InferenceSession`, by the same names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import onnxruntime
from typing_extensions import TypedDict

from ..foundation.choices import NO_CHOICES, Choices
from .reported_session import CountedCalls, ReportedSession

Providers = Sequence[str | tuple[str, dict[Any, Any]]]
"""Names of providers, or names and options."""


Sizes = Mapping[str, int]
"""Name of a free axis -> its size in a call."""


class Wanted(NamedTuple):
    """The calls that code of a model is wanted for."""

    threads: int
    rows: int
    """Rows that layers get at once, 0 for any number."""
    sizes: tuple[tuple[str, int], ...] = ()
    """Sizes of free axes; none where code is to run calls of all sizes."""
    digest: bytes = b""
    """Digest of the model, where it was worked out before and the model cannot have changed."""
    choices: Choices = NO_CHOICES
    """Kernels and passes that a person has chosen."""

    def with_sizes(self, sizes: Sizes) -> "Wanted":
        """Return the same for calls of these sizes."""
        return self._replace(sizes=(*sizes.items(),))

    @property
    def salt(self) -> str:
        """The part of a name in the cache that sets a model apart that was optimized for this."""
        sizes = "".join(f" {name!r}={size}" for name, size in self.sizes)
        # of one for certain sizes the code is in the cache as well, for so many threads
        chosen = f" {self.choices}" if self.choices != NO_CHOICES else ""
        return f"session rows={self.rows}{chosen}" + (f"{sizes} threads={self.threads}" if sizes else "")


class OtherArguments(TypedDict, total=False):
    """Arguments that `InferenceSession` takes by name alone."""

    disabled_optimizers: Sequence[str] | set[str]
    enable_fallback: bool | int
    read_config_from_model: bool | int


class NamedArguments(OtherArguments):
    """All arguments of `InferenceSession` but the model."""

    sess_options: onnxruntime.SessionOptions | None
    providers: Providers
    provider_options: Sequence[dict[Any, Any]] | None


THREADS: Final = frozenset({"n_threads", "num_threads", "threads"})
"""Names by which other libraries call the number of threads of a session."""


@dataclass(frozen=True)
class SessionArguments:
    """Arguments of a session beside the model; only the CPU's provider where none is named."""

    options: onnxruntime.SessionOptions | None = None
    providers: Providers | None = None
    provider_options: Sequence[dict[Any, Any]] | None = None
    others: OtherArguments = field(default_factory=OtherArguments)
    count_calls: bool = False
    """Whether the session counts its calls."""

    def __post_init__(self) -> None:
        """Refuse other arguments that no session has: onnxruntime ignores them.

        Raises:
            TypeError: there is no such argument.
        """
        for name in self.others:
            if name not in OtherArguments.__annotations__:
                raise TypeError(f"session has no argument {name!r}, {_instead_of(name)}")

    def make(self, model: str | bytes) -> ReportedSession:
        """Return onnxruntime's session of a model."""
        return (CountedCalls if self.count_calls else ReportedSession)(model, **self.by_name)

    @property
    def by_name(self) -> NamedArguments:
        """All arguments by the names that `InferenceSession` gives them."""
        return NamedArguments(
            sess_options=self.options,
            providers=["CPUExecutionProvider"] if self.providers is None else self.providers,
            provider_options=self.provider_options,
            **self.others,
        )


def _instead_of(name: str) -> str:
    option = "intra_op_num_threads" if name in THREADS else name
    if hasattr(onnxruntime.SessionOptions, option):
        return f"set {option} of an onnxruntime.SessionOptions and give that as sess_options"
    return f"expected rows and those of onnxruntime.InferenceSession: {', '.join(OtherArguments.__annotations__)}"
