"""Sessions that know what they are made of, and those that count their calls: for the metrics of a server."""

from collections.abc import Mapping, Sequence
from threading import Lock
from time import perf_counter
from typing import Any, cast

import numpy as np
import onnxruntime
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from .counters import Name


class ReportedSession(onnxruntime.InferenceSession):
    """A session of `redpebble.session`; a call takes as long as in any session of onnxruntime."""

    opened: Mapping[Name, float] = {}
    """Counts of `redpebble.counters` that opening the session has added to."""

    @property
    def redpebble_report(self) -> dict[str, float]:
        """The counts of `redpebble.counters` that are this session's, and what its calls took, where they are counted.

        Of sessions with `count_calls`: `calls` that returned, their `rows` (the first axis of the model's first input),
        and their `seconds`, all within `run`. Of sessions whose code waits for sizes: `sizes_with_code` now, and the
        `calls_without_code`, which onnxruntime served.
        """
        return {**self.opened}


class CountedCalls(ReportedSession):
    """Counts of calls, which may come from any thread; counting takes about two microseconds a call."""

    def __init__(self, *arguments: Any, **others: Any) -> None:  # noqa: ANN401 - those of the session
        """Begin at 0."""
        super().__init__(*arguments, **others)
        self._counting, self._calls, self._rows, self._seconds = Lock(), 0, 0, 0.0
        self._first = next((value.name for value in self.get_inputs()), "")

    @override
    def run(self, output_names: Sequence[str] | None, input_feed: Any, run_options: Any = None) -> list[NDArray[Any]]:
        """Run the model, as every session does."""
        begun = perf_counter()
        results = super().run(output_names, input_feed, run_options)
        spent, rows = perf_counter() - begun, _rows(input_feed.get(self._first))
        with self._counting:
            self._calls += 1
            self._seconds += spent
            self._rows += rows
        return results

    @property
    @override
    def redpebble_report(self) -> dict[str, float]:
        """As without counting, with `calls`, `rows` and `seconds`."""
        with self._counting:
            return super().redpebble_report | {"calls": self._calls, "rows": self._rows, "seconds": self._seconds}


def _rows(value: object) -> int:
    shape = value.shape() if isinstance(value, onnxruntime.OrtValue) else np.shape(cast("ArrayLike", value))
    return shape[0] if shape else 0
