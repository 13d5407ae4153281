"""The report of a pruning."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class PrunedWeight:
    """A weight [outputs, inputs] with its zeros."""

    name: str
    outputs: int
    inputs: int
    zeros: int
    loss: float | None
    """Mean square by which outputs of the layer move, over that of the outputs; None where no data tells it."""
    dense_us: float | None = None
    us: float | None = None
    """Predicted microseconds in a call, dense and as it is; None where nobody asked for them."""

    @property
    def size(self) -> int:
        """The number of weights, zeros included."""
        return self.outputs * self.inputs

    @property
    def density(self) -> float:
        return 1 - self.zeros / self.size


class Rehearsed(NamedTuple):
    """Microseconds of a call in a session of onnxruntime, dense and with as many zeros as there are now."""

    original_us: float
    us: float
    inputs: str
    """Names and shapes of the inputs of the call."""


@dataclass(frozen=True)
class PruneReport:
    """The pruned weights, and how long it took."""

    layers: tuple[PrunedWeight, ...]
    seconds: float
    original_us: float | None = None
    """Predicted microseconds of all prunable layers before, those of blocks that were dropped included."""
    rest_us: float = 0.0
    """Microseconds of all that is no such layer before, as the caller said."""
    rehearsed: Rehearsed | None = None
    """None where times are predictions."""
    blocks: tuple[int, ...] | None = None
    """The numbers of the blocks that were kept; None where none were dropped."""
    heads: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """The heads that were dropped, by the name of the attention."""
    saved_us: float = 0.0
    """Predicted microseconds that went from the rest with blocks and heads."""

    @property
    def zeros(self) -> int:
        return sum(one.zeros for one in self.layers)

    @property
    def sparsity(self) -> float:
        """The share of zeros in all pruned weights."""
        return self.zeros / max(1, sum(one.size for one in self.layers))

    @property
    def speedup(self) -> float | None:
        """The times by which a session is as fast as before; or the layers, and what the caller said of the rest."""
        if self.rehearsed is not None:
            return self.rehearsed.original_us / self.rehearsed.us
        if self.original_us is None:
            return None
        now = sum(one.us or 0.0 for one in self.layers) + self.rest_us - self.saved_us
        return (self.original_us + self.rest_us) / max(now, 1e-9)

    def __str__(self) -> str:
        """Return a line."""
        losses = [one.loss for one in self.layers if one.loss is not None]
        lost = f", outputs of layers lose {sum(losses) / len(losses):.1%} on average" if losses else ""
        known = "predicted" if self.rehearsed is None else f"rehearsed with {self.rehearsed.inputs}"
        speed = "" if self.speedup is None else f", {self.speedup:.2f}x as fast ({known})"
        gone = sum(map(len, self.heads.values()))
        heads = f", {gone} heads dropped" if gone else ""
        return f"{len(self.layers)} layers, {self.sparsity:.1%} zeros{heads}{lost}{speed}, {self.seconds:.1f} s"
