"""Runs of a model, segment after segment, on all batches of the data at once, with dense or with pruned weights."""

import mmap
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..layers import PrunableLayer
from .segments import SegmentedModel

Array = NDArray[np.float32]
Value = NDArray[Any]
Weights = Mapping[str, Array]

SPILLED_FROM: Final = 1 << 20
"""Bytes from which a value lies in a file without a name: memory must not grow with the data."""


@dataclass
class Trace:
    """A run that has come up to a segment, with the values of each batch that are still needed."""

    model: SegmentedModel
    batches: list[dict[str, Value]]
    done: int = 0
    spills: bool = True
    """Whether large values lie in files."""

    @staticmethod
    def start(model: SegmentedModel, batches: Sequence[Mapping[str, Value]]) -> "Trace":
        """Return a run before the first segment."""
        return Trace(model, [dict(batch) for batch in batches])

    @property
    def is_over(self) -> bool:
        return self.done == len(self.model.segments)

    def advance(self, weights: Weights) -> None:
        """Run the next segment with weights [inputs, outputs] by layer."""
        for values in self.batches:
            found = self.model.run(self.done, values, weights)
            values |= {name: _spilled(value) for name, value in found.items()} if self.spills else found
            for name in [name for name in values if self.model.last_reader(name) <= self.done]:
                del values[name]
            for value in values.values():
                _put_away(value)
        self.done += 1

    def finish(self, weights: Weights) -> list[dict[str, Value]]:
        """Run all that is left, and return the outputs of each batch."""
        while not self.is_over:
            self.advance(weights)
        return [{name: values[name] for name in self.model.outputs} for values in self.batches]

    def branch(self, few: int | None = None) -> "Trace":
        """Return a run of its own from here on, of all batches, or of a few that memory has room for."""
        spills = self.spills and few is None
        return Trace(self.model, [dict(values) for values in self.batches[:few]], self.done, spills)

    def rows(self, layer: PrunableLayer) -> Iterator[Array]:
        """Yield the rows that a layer of the next segment multiplies, [rows, inputs], batch by batch or finer."""
        samples = sum(len(values[layer.x]) for values in self.batches)
        for values in self.batches:
            yield from layer.rows(values[layer.x], samples)
            _put_away(values[layer.x])


def _spilled(value: Value) -> Value:
    if value.nbytes < SPILLED_FROM or value.dtype.hasobject:
        return value
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, value.dtype, "w+", shape=value.shape)
    mapped[...] = value
    return mapped


def _put_away(value: Value) -> None:
    """Give back the memory of a value that lies in a file, until it is looked at again."""
    if isinstance(value.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        value.base.madvise(mmap.MADV_DONTNEED)
