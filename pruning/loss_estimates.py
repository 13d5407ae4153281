"""A loss as far as it is known: its mean over samples that weights were not fitted to, and an interval around it.

Most samples lose nearly nothing, and a few, of which small data may have none, lose nearly all. So the interval is a
Bayesian bootstrap, in which each sample has a random weight of exponential distribution, and at its upper end there is
one sample more, as wrong as the outputs of another sample are. Where k of n samples are wrong and the others right, the
ends are quantiles of sums of k and of k + 1 such weights over n, as those of Clopper and Pearson for a share of k / n
are; where no sample is wrong that is the rule of three.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from .losses import Losses

CONFIDENCE: Final = 0.99
"""Share of the intervals that hold the loss of all inputs of the kind of the data: models are shipped by them."""

WRONG: Final = 2.0
"""Loss of a sample that gets another one's outputs, on average: the difference of two has twice the variance."""

FEW: Final = 200
"""Samples below which more of them are asked for: one that is wrong may hide among them as often as in 1 of 50."""

DRAWS: Final = 10_000
LEAST_DRAWS: Final = 1000
NUMBERS: Final = 20_000_000
"""Random numbers in all, about, up to which there are more draws than the least."""
AT_ONCE: Final = 1 << 18
"""Random numbers that are drawn at once, about."""


@dataclass(frozen=True)
class LossEstimate:
    """A loss, and what it is known by."""

    loss: float
    """See `redpebble.pruning.losses`."""
    interval: tuple[float, float] | None
    """Confidence bounds of the loss on new inputs; None where weights were fitted to every sample."""
    samples: int
    """Held-out samples behind the estimate; 0 for none."""
    folds: int = 1
    """Parts of the data, each judged by weights fitted to the others; 1 where one part is held out."""

    @staticmethod
    def of(losses: Losses, seed: int, folds: int = 1) -> "LossEstimate":
        """Return the estimate by the losses of held-out samples."""
        low, high = interval_of(losses, seed)
        # a fit to all samples loses less than one that leaves a fold out: in proportion to their number at most
        low *= (folds - 1) / folds if folds > 1 else 1
        return LossEstimate(float(losses.mean()), (low, high), len(losses), folds)

    @property
    def judged_by(self) -> str:
        """The samples that the loss is measured on."""
        if self.folds > 1:
            return f"{self.samples} samples, cross-validated in {self.folds} folds"
        return f"{self.samples} samples held out" if self.samples else "the data that weights are fitted to"

    @property
    def range_text(self) -> str:
        """The bounds, in per cent; without them what they would be is said."""
        if self.interval is None:
            return "more on other inputs"
        low, high = self.interval
        return f"{100 * low:.2f} to {high:.2%} with {CONFIDENCE:.0%} confidence"

    @property
    def caution(self) -> str:
        """The sentence that warns of too few samples; none where there are enough."""
        if self.interval is None:
            return f"no sample is held out, so the loss of other inputs is unknown: give {FEW} samples or more"
        if self.samples >= FEW:
            return ""
        bound = f"{self.interval[1]:.1%} of the outputs' variance"
        return f"{self.samples} samples are few: other inputs may lose {bound}; some hundred more would narrow this"

    def __str__(self) -> str:
        """Return the loss with its bounds, and what it is known by."""
        return f"{self.loss:.2%} of the outputs' variance lost, {self.range_text}, on {self.judged_by}"


def interval_of(losses: Losses, seed: int) -> tuple[float, float]:
    """Return the bounds of the mean of all samples of a kind, of which some have these losses."""
    rng, tail = np.random.default_rng(seed), (1 - CONFIDENCE) / 2
    worst = max(WRONG, float(losses.max()))
    draws = int(np.clip(NUMBERS // len(losses), LEAST_DRAWS, DRAWS))
    low, high = np.empty(draws), np.empty(draws)
    step = max(1, AT_ONCE // (len(losses) + 1))
    for start in range(0, draws, step):
        some = slice(start, min(start + step, draws))
        weights = rng.standard_exponential((some.stop - start, len(losses) + 1))
        total, weight = weights[:, :-1] @ losses, weights[:, :-1].sum(axis=1)
        low[some], high[some] = total / weight, (total + weights[:, -1] * worst) / (weight + weights[:, -1])
    return float(np.quantile(low, tail)), float(np.quantile(high, 1 - tail))
