"""Parts of the data: weights are fitted to some samples, and losses measured on others, which are chosen at random.

Weights lose half as much on samples that they were fitted to as on others. Of many samples an eighth is held out. Of
some hundred that would be too few to tell anything: there each fifth is judged by weights that are fitted to the rest,
and the weights of the result are fitted to all.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from .calibration_data import Feeds

HELD_OUT: Final = 8
"""One of so many samples is held out."""

LEAST_SAMPLES: Final = 64
"""Samples below which none is held out of a fit, and its loss is measured on the data itself."""

FOLDS: Final = 5

MANY_SAMPLES: Final = 2000
"""Samples from which on an eighth of them is enough to judge by."""


class Fold(NamedTuple):
    """Batches that weights are fitted to, and those that their loss is measured on: the same where none are spared."""

    fitted: Sequence[Feeds]
    judged: Sequence[Feeds]


class Split(NamedTuple):
    """All batches, and the folds that they are judged in: one where a part is held out, or nothing is spared."""

    whole: Sequence[Feeds]
    folds: Sequence[Fold]
    is_held_out: NDArray[np.bool_]
    """[samples], in the order of all batches: those that no weight is fitted to."""

    @property
    def is_spared(self) -> bool:
        """Whether losses are measured on samples that weights are not fitted to."""
        return len(self.folds) > 1 or bool(self.is_held_out.any())

    @property
    def fitted(self) -> Sequence[Feeds]:
        """The batches that the weights of the result are fitted to."""
        return self.whole if len(self.folds) > 1 else self.folds[0].fitted


def shuffled(
    feeds: Mapping[str, NDArray[Any]], labels: NDArray[Any] | None, seed: int
) -> tuple[Feeds, NDArray[Any] | None]:
    """Return samples, and labels where there are as many, in a random order: data is often sorted, as by class.

    What has no first axis in common stays as it is.
    """
    counts = {len(value) if value.ndim else 0 for value in feeds.values()}
    if len(counts) != 1 or (labels is not None and labels.shape[:1] != tuple(counts)):
        return feeds, labels
    order = np.random.default_rng(seed).permutation(counts.pop())
    return {name: value[order] for name, value in feeds.items()}, None if labels is None else labels[order]


def spared_batches(fitted: Sequence[Feeds], judged: Sequence[Feeds]) -> Split:
    """Return the parts of data of which somebody else has spared some."""
    counts = [_count(batch) for batch in (*fitted, *judged)]
    is_held_out = np.repeat([False] * len(fitted) + [True] * len(judged), counts)
    return Split([*fitted, *judged], [Fold(fitted, judged)], is_held_out)


def _count(batch: Feeds) -> int:
    return min((len(value) for value in batch.values() if value.ndim), default=1)


def split_batches(graph: onnx.GraphProto, batches: Sequence[Feeds], seed: int, *, folded: bool) -> Split:
    """Return the parts of the data; whole batches are judged where their size is fixed.

    Where it is not `folded`, a part is held out of few samples, too.
    """
    counts = list(map(_count, batches))
    is_free, total = _is_free(graph, batches, counts), sum(counts)
    units = total if is_free else len(batches)
    order = np.random.default_rng(seed).permutation(units)
    part = np.full(units, -1)
    if folded and total < MANY_SAMPLES:
        part[order] = np.arange(units) % FOLDS
    elif total >= LEAST_SAMPLES:
        part[order[: units // HELD_OUT]] = 0
    parts = np.split(part if is_free else np.repeat(part, counts), np.cumsum(counts)[:-1])
    numbers = range(int(part.max(initial=-1)) + 1)
    if not numbers or (len(numbers) == 1 and (part == 0).all()):
        return Split(batches, [Fold(batches, batches)], np.zeros(total, np.bool_))
    folds = [
        Fold(_chosen(batches, [one != number for one in parts]), _chosen(batches, [one == number for one in parts]))
        for number in numbers
    ]
    is_held_out = np.concatenate(parts) == 0 if len(folds) == 1 else np.zeros(total, np.bool_)
    return Split(batches, folds, is_held_out)


def _is_free(graph: onnx.GraphProto, batches: Sequence[Feeds], counts: Sequence[int]) -> bool:
    """Return whether batches may have any number of samples, along the first axis of all inputs."""
    inputs = {value.name: value.type.tensor_type.shape.dim[:1] for value in graph.input}
    return all(
        value.ndim and len(value) == count and not (inputs[name] and inputs[name][0].HasField("dim_value"))
        for batch, count in zip(batches, counts, strict=True)
        for name, value in batch.items()
    )


def _chosen(batches: Sequence[Feeds], masks: Sequence[NDArray[np.bool_]]) -> list[Feeds]:
    """Return the chosen samples of each batch; a batch of which all are may have no first axis in common."""
    return [
        batch if mask.all() else {name: value[mask] for name, value in batch.items()}
        for batch, mask in zip(batches, masks, strict=True)
        if mask.any()
    ]
