"""The course of a training."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Point:
    """A moment: the mean loss since the one before, and the quality where it was measured then."""

    step: int
    seconds: float
    loss: float
    quality: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def score(self) -> float | None:
        """The first number of the quality, which decides what is best: more is better."""
        return next(iter(self.quality.values()), None)


@dataclass(frozen=True)
class History:
    """All moments, and the step whose weights the module has."""

    points: tuple[Point, ...]
    kept: int
    samples: int
    """Samples that were seen, those of later epochs as well."""
    stopped_early: bool = False

    @property
    def steps(self) -> int:
        return self.points[-1].step if self.points else 0

    @property
    def seconds(self) -> float:
        return self.points[-1].seconds if self.points else 0.0

    @property
    def loss(self) -> float:
        """The last mean loss."""
        return self.points[-1].loss if self.points else float("nan")

    @property
    def quality(self) -> Mapping[str, float]:
        """The quality of the weights that were kept; empty where nobody measured it."""
        return next(
            (one.quality for one in reversed(self.points) if one.step == self.kept and one.quality), dict[str, float]()
        )

    def __str__(self) -> str:
        """Return a line."""
        quality = "".join(f", {name} {value:.4g}" for name, value in self.quality.items())
        early = ", stopped early" if self.stopped_early else ""
        return f"{self.steps} steps, {self.samples} samples, {self.seconds:.0f} s, loss {self.loss:.4g}{quality}{early}"
