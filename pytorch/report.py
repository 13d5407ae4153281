"""The report of a pruning."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PrunedWeight:
    """A weight [outputs, inputs] with its zeros."""

    name: str
    outputs: int
    inputs: int
    zeros: int
    loss: float | None
    """Mean square by which outputs of the layer move, over that of the outputs; None where no data tells it."""

    @property
    def size(self) -> int:
        """The number of weights, zeros included."""
        return self.outputs * self.inputs

    @property
    def density(self) -> float:
        return 1 - self.zeros / self.size


@dataclass(frozen=True)
class PruneReport:
    """The pruned weights, and how long it took."""

    layers: tuple[PrunedWeight, ...]
    seconds: float

    @property
    def zeros(self) -> int:
        return sum(one.zeros for one in self.layers)

    @property
    def sparsity(self) -> float:
        """The share of zeros in all pruned weights."""
        return self.zeros / max(1, sum(one.size for one in self.layers))

    def __str__(self) -> str:
        """Return a line."""
        losses = [one.loss for one in self.layers if one.loss is not None]
        lost = f", outputs of layers lose {sum(losses) / len(losses):.1%} on average" if losses else ""
        return f"{len(self.layers)} layers, {self.sparsity:.1%} zeros{lost}, {self.seconds:.1f} s"
