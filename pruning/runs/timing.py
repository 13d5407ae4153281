"""Times of a model in onnxruntime, the original and one with sparse layers in turn."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray

from ...ort.any_model import session
from ...runtime.memory import return_free_memory
from ...verification.measuring import Budget, interleave
from ...verification.oracle import Oracle, session_options

Value = NDArray[Any]
Feeds = Mapping[str, Value]

BUDGET: Final = Budget(1.0, least_rounds=5, most_rounds=300)

NOISY: Final = 1.05
"""Time of the original over its best one from which on a measurement is made again."""

MEASUREMENTS: Final = 4


NAMED_ALIKE: Final = 4
"""Inputs of one shape up to which a report names them all."""


@dataclass(frozen=True)
class MeasuredTimes:
    """Microseconds of a call, by the fastest rounds."""

    original_us: float
    pruned_us: float

    @property
    def speedup(self) -> float:
        """Times as fast as the original."""
        return self.original_us / self.pruned_us


@dataclass
class ModelClock:
    """Times of an original and of pruned models; the best time of the original tells when others disturb the clock."""

    original: str | os.PathLike[str] | onnx_ir.Model
    feeds: Feeds
    threads: int
    budget: Budget = BUDGET
    original_us: float = inf
    """Its fastest round until now."""

    @property
    def inputs(self) -> str:
        """The names and shapes of the inputs that are measured, such as `x 1x3x224x224`."""
        names = dict[str, list[str]]()
        for name, value in self.feeds.items():
            names.setdefault("x".join(map(str, value.shape)) or "()", []).append(name)
        return "; ".join(f"{_named(some)} {shape}" for shape, some in names.items())

    @property
    def _budget(self) -> Budget:
        # the time of one thread leaves out what other programs take: all is done by the thread that calls
        return replace(self.budget, clock=time.thread_time) if self.threads == 1 else self.budget

    def measure_original(self) -> None:
        """Let the original have a time without a pruned model beside it.

        Raises:
            OracleError: onnxruntime refuses the model or the inputs.
        """
        call = partial(Oracle(self.original, self.threads).run, self.feeds)
        self.original_us = min(self.original_us, interleave({"original": call}, self._budget)["original"].min_us)

    def times(self, pruned: onnx_ir.Model) -> MeasuredTimes:
        """Return the times of the original and of a pruned model.

        The core of a shared machine may be half as fast for seconds, for both alike. So the pruned model has its share
        of the original's time in the same rounds, of the measurement in which that was shortest.

        Raises:
            OracleError: onnxruntime refuses a model or the inputs.
        """
        # compiling needs more memory than anything else here, so nothing is beside it that need not be
        return_free_memory()
        after = Oracle.of(partial(session, pruned, session_options(self.threads)))
        before = Oracle(self.original, self.threads)
        calls = {"original": partial(before.run, self.feeds), "pruned": partial(after.run, self.feeds)}
        fastest, share = inf, 1.0
        for _ in range(MEASUREMENTS):
            found = interleave(calls, self._budget)
            original_us = found["original"].min_us
            if 0 < original_us < fastest:
                fastest, share = original_us, found["pruned"].min_us / original_us
            self.original_us = min(self.original_us, original_us)
            if original_us <= NOISY * self.original_us:
                break
        return MeasuredTimes(self.original_us, share * self.original_us)


def _named(names: Sequence[str]) -> str:
    """Return names; decoders have a past for each layer, all of one shape."""
    return ", ".join(names) if len(names) <= NAMED_ALIKE else f"{', '.join(names[:2])} and {len(names) - 2} others"


def feeds_with_rows(graph: onnx.GraphProto, batch: Feeds, batch_rows: int, rows: int) -> Feeds:
    """Return inputs by which layers get about so many rows, given a batch by which they get `batch_rows`.

    Samples are repeated or left out, and where a single one makes too many rows, its free axes are cut.
    """
    dims = {value.name: value.type.tensor_type.shape.dim for value in graph.input}
    if any(not one or one[0].HasField("dim_value") for name, one in dims.items() if name in batch):
        return batch
    samples = min(len(value) for value in batch.values())
    of_each = max(1, round(batch_rows / samples))
    count = max(1, round(rows / of_each))
    taken = {name: np.resize(value, (count, *value.shape[1:])) for name, value in batch.items()}
    if rows >= of_each:
        return taken
    share = rows / of_each
    # an empty past stays as it is
    return {name: _cut(value, dims[name], share) if value.size else value for name, value in taken.items()}


def _cut(value: Value, dims: Sequence[onnx.TensorShapeProto.Dimension], share: float) -> Value:
    free = [axis > 0 and not dim.HasField("dim_value") for axis, dim in enumerate(dims)]
    sizes = (max(1, round(size * share)) if free[axis] else size for axis, size in enumerate(value.shape))
    return np.ascontiguousarray(value[tuple(slice(0, size) for size in sizes)])
