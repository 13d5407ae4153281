"""Intervals of 95 % of the difference of two models in a metric, by leaving out a twentieth of the samples at a time.

The jackknife takes any function of answers: with d_g the difference without group g of G, the standard error is
sqrt((G - 1) / G * sum (d_g - mean d)^2). Both models leave out the same samples, so what is hard for both cancels.

Source: Efron and Stein, The Jackknife Estimate of Variance, Annals of Statistics 1981.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .metrics import Answers, Batches, Metric

GROUPS: Final = 20
QUANTILE: Final = 2.09
"""Student's t of 19 degrees of freedom, 97.5 %."""

LEAST_SAMPLES: Final = 10
"""With fewer an interval says nothing."""

SHARES: Final = ("accuracy", "recall")
"""Metrics that count samples: what none of n shows may still be true of 3 / n."""


class Interval(NamedTuple):
    """The bounds of 95 % of a difference."""

    least: float
    greatest: float

    def __str__(self) -> str:
        return f"{self.least:+.2g} to {self.greatest:+.2g}"


def difference_interval(metric: Metric, dense: Answers, sparse: Answers) -> Interval | None:
    """Return the interval of the sparse model's first number less the dense one's; None of too few samples.

    Outputs and inputs have samples along their first axes.
    """
    sizes = [len(next(iter(batch.values()))) for batch in dense.outputs]
    count = sum(sizes)
    if count < LEAST_SAMPLES or any(len(v) != n for b, n in zip(dense.outputs, sizes, strict=True) for v in b.values()):
        return None
    groups, places = min(GROUPS, count), np.split(np.arange(count), np.cumsum(sizes)[:-1])

    def difference(group: int) -> float:
        masks = [place % groups != group for place in places]
        kept = [first_of(metric(_some(one, masks))) for one in (dense, sparse)]
        return kept[1] - kept[0]

    found = np.array([difference(group) for group in range(groups)])
    whole = metric(dense), metric(sparse)
    middle = first_of(whole[1]) - first_of(whole[0])
    half = QUANTILE * float(np.sqrt((groups - 1) / groups * np.square(found - found.mean()).sum()))
    if next(iter(whole[0])).partition("@")[0] in SHARES:
        half = max(half, 3 / count)
    return Interval(middle - half, middle + half)


def first_of(numbers: Mapping[str, float]) -> float:
    """Return the number that decides."""
    return next(iter(numbers.values()))


def _some(answers: Answers, masks: list[NDArray[np.bool_]]) -> Answers:
    def some(batches: Batches) -> list[dict[str, NDArray[Any]]]:
        return [
            {name: value[mask] if len(value) == len(mask) else value for name, value in batch.items()}
            for batch, mask in zip(batches, masks, strict=True)
            if mask.any()
        ]

    labels = None if answers.labels is None else answers.labels[np.concatenate(masks)]
    return Answers(some(answers.outputs), some(answers.inputs), some(answers.teacher), labels)
