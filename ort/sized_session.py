"""Sessions of models whose code waits for the sizes of calls: onnxruntime serves a size until there is code for it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final
from weakref import finalize

import onnxruntime
from numpy.typing import NDArray
from typing_extensions import override

from ..foundation.log import LOG
from ..frontend.errors import ModelError
from ..frontend.reading.axis_names import Axes, Dims, check_sizes, size_or_name, sizes_of, words_of
from .code_of_sizes import CodeOfSizes, Key
from .reported_session import CountedCalls, ReportedSession
from .session_arguments import SessionArguments, Sizes

MOST_SHAPES: Final = 4096


class SizedSession(ReportedSession):
    """A session that hands calls on to one for the sizes of their inputs, where there is one.

    Calls by `run_with_iobinding`, `run_with_ort_values` and `run_async` run as they are.
    """

    def __init__(self, ready: str | bytes, arguments: SessionArguments, axes: Axes, code: CodeOfSizes) -> None:
        """Make a session of `ready`, which runs inputs of any size; `code` has what is made for one size of `axes`."""
        super().__init__(ready, **arguments.by_name)
        self._axes, self.code = axes, code
        self._calls_without_code, self._counting_others = 0, Lock()
        self._keys: dict[tuple[tuple[int, ...], ...], Key] = {}
        """Shapes of inputs that were met -> the sizes in them: found out once, since a call may take microseconds."""
        finalize(self, code.close)

    @override
    def run(self, output_names: Sequence[str] | None, input_feed: Any, run_options: Any = None) -> list[NDArray[Any]]:
        """Run the model, as every session does."""
        key = self.key_of(input_feed)
        chosen = self.code.of(key) if key else None
        if chosen is None:
            with self._counting_others:
                self._calls_without_code += 1
            return super().run(output_names, input_feed, run_options)
        return chosen.run(output_names, input_feed, run_options)

    @property
    @override
    def redpebble_report(self) -> dict[str, float]:
        """As of any session, with those of code that was made since, `sizes_with_code` and `calls_without_code`."""
        counts, others = Counter(super().redpebble_report), Counter(self.code.counts)
        sizes = {"sizes_with_code": len(self.code.ready_sizes()), "calls_without_code": self._calls_without_code}
        return {**(counts + others), **sizes}

    def key_of(self, feeds: Mapping[str, Any]) -> Key:
        """Return the sizes that inputs have, by the names of axes; an empty key where there is no code for them."""
        shapes = tuple([getattr(feeds.get(name), "shape", ()) for name in self._axes])
        known = self._keys.get(shapes)
        if known is not None:
            return known
        sizes = sizes_of(self._axes, dict(zip(self._axes, shapes, strict=True)))
        if len(self._keys) >= MOST_SHAPES:
            self._keys.clear()
        return self._keys.setdefault(shapes, (*sizes.items(),) if sizes and min(sizes.values()) > 0 else ())

    def prepare(self, sizes: Sizes) -> None:
        """Make code for calls of these sizes, now.

        Raises:
            ValueError: a size that code waits for is not among them.
        """
        words = words_of(self._axes)
        missing = [word for word in words if word not in sizes]
        if missing:
            raise ValueError(f"expected the sizes of {', '.join(words)}, got none of {', '.join(missing)}")
        self.code.prepare(tuple((word, sizes[word]) for word in words))


class CountedSizedSession(CountedCalls, SizedSession):
    """A session for sizes that counts its calls."""


def prepare(session: onnxruntime.InferenceSession, sizes: Sequence[Sizes]) -> None:
    """Make code for calls of these sizes, now, in a session that waits for sizes; others have it already.

    Raises:
        ValueError: there is no such free axis, or a size that code waits for is not stated.
    """
    for one in sizes:
        check_sizes(_dims_of(session), one)
        if isinstance(session, SizedSession):
            session.prepare(one)
    if sizes and not isinstance(session, SizedSession):
        LOG.info("no code of the model waits for sizes, those that are stated change nothing")


def prepare_for(session: onnxruntime.InferenceSession, feeds: Mapping[str, Any]) -> None:
    """Make code for calls with inputs as large as these, now, in a session that waits for sizes."""
    if isinstance(session, SizedSession) and (key := session.key_of(feeds)):
        with suppress(ModelError):  # sizes that the model does not take: onnxruntime says so
            session.code.prepare(key)


def _dims_of(session: onnxruntime.InferenceSession) -> Dims:
    inputs = [value for value in session.get_inputs() if value.type.startswith("tensor(")]
    return {value.name: [*map(size_or_name, value.shape)] for value in inputs}
