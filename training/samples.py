"""Samples that a network is trained on, with what they are to become: arrays, or memory maps of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..lowering.program import Tensor
from .options import FinetuneOptions
from .replicas import Replicas

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Teacher = Callable[[Mapping[str, Floats]], Floats]
"""(inputs of some rows) -> what is wanted of them [rows, features]."""


@dataclass(frozen=True)
class Samples:
    """Inputs by name [samples, features], and labels of them, or a teacher who knows.

    Where samples are nodes of a graph that ranks share, `own` are those of this rank, ascending.
    """

    inputs: Mapping[str, NDArray[Any]]
    labels: NDArray[Any] | None = None
    teacher: Teacher | None = None
    own: Indices | None = None

    @property
    def count(self) -> int:
        return min((len(array) for array in self.inputs.values()), default=0)

    def check(self, tensors: tuple[Tensor, ...], target: Tensor) -> None:
        """Check that arrays fit the inputs of a network and its target.

        Raises:
            ValueError: they do not.
        """
        if sorted(self.inputs) != sorted(tensor.name for tensor in tensors):
            held = ", ".join(sorted(self.inputs)) or "none"
            raise ValueError(f"expected {', '.join(tensor.name for tensor in tensors)} in the data, got {held}")
        for tensor in tensors:
            array, features = self.inputs[tensor.name], tensor.shape[-1].constant
            if array.ndim != 2 or array.shape[1] != features or array.dtype.kind not in "fiub":
                raise ValueError(
                    f"input {tensor.name!r} of the data: expected numbers (samples, {features}), "
                    f"got {array.dtype} of shape {array.shape}"
                )
        if not self.count or len({len(array) for array in self.inputs.values()}) > 1:
            counts = ", ".join(str(len(array)) for array in self.inputs.values())
            raise ValueError(f"expected the same number of samples for each input, 1 or more, got {counts}")
        self._check_labels(target.shape[-1].constant or 0)

    def _check_labels(self, features: int) -> None:
        labels = self.labels
        if (labels is None) == (self.teacher is None):
            raise ValueError("expected either labels or a teacher")
        if labels is None:
            return
        if len(labels) != self.count:
            raise ValueError(f"{len(labels)} labels for {self.count} samples")
        if labels.ndim == 1 and features > 1:
            if labels.dtype.kind not in "iub" or not 0 <= labels.min() <= labels.max() < features:
                raise ValueError(
                    f"labels: expected classes 0 to {features - 1}, or wanted outputs (samples, {features}), "
                    f"got {labels.dtype} from {labels.min()} to {labels.max()}"
                )
        elif labels.size != self.count * features or labels.dtype.kind not in "fiub":
            raise ValueError(
                f"labels: expected numbers ({self.count}, {features}), got {labels.dtype} of shape {labels.shape}"
            )

    def share(self, replicas: Replicas, batch: int) -> Indices:
        """Return the places in a batch of the samples that this replica takes."""
        if self.own is not None:
            return self.own
        rows = batch // replicas.size
        return np.arange(replicas.rank * rows, (replicas.rank + 1) * rows)

    def in_order(self, replicas: Replicas, rows: int) -> Iterator[tuple[Indices, int]]:
        """Yield so many samples of this replica at a time, and how many of them were not read before."""
        if self.own is not None:
            yield self.own, len(self.own)
            return
        first, behind = (self.count * number // replicas.size for number in (replicas.rank, replicas.rank + 1))
        for chosen in batches_in_order(first, behind, rows):
            yield chosen, min(rows, behind - int(chosen[0]))

    def take(self, chosen: Indices, feeds: Mapping[str, Floats], target: Floats) -> None:
        """Write the chosen samples into arrays of as many rows."""
        for name, array in self.inputs.items():
            feeds[name][...] = array[chosen]
        if self.labels is None:
            assert self.teacher is not None
            target[...] = self.teacher(feeds)
        elif self.labels.ndim == 1 and target.shape[1] > 1:
            target.fill(0)
            target[np.arange(len(chosen)), self.labels[chosen]] = 1
        else:
            target[...] = self.labels[chosen].reshape(target.shape)


class Task(NamedTuple):
    """Samples to train on and to validate with, and the options."""

    samples: Samples
    validation: Samples | None
    options: FinetuneOptions


def shuffled_batches(count: int, rows: int, rng: np.random.Generator) -> Iterator[Indices]:
    """Yield all samples in random order, so many at a time, ascending as maps are read; what is left over waits."""
    order = rng.permutation(count)
    for start in range(0, count - rows + 1, rows):
        yield np.sort(order[start : start + rows])


def batches_in_order(first: int, behind: int, rows: int) -> Iterator[Indices]:
    """Yield samples from `first` to the one before `behind`, so many at a time; the last one may be read again."""
    for start in range(first, behind, rows):
        yield np.minimum(np.arange(start, start + rows), behind - 1)
