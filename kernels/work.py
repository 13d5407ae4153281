"""A linear layer, a tile, and the work that a kernel has with them, as far as kernel families share it.

Work is counted in units that a family prices: instructions by what they are for, and bytes that the first-level cache
does not deliver. The numbers follow from the connections of each output, as if they were spread evenly over the inputs;
they mirror the packing of a family's format, which itself would take far longer.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..sparse.csr import CsrPattern
from .input_blocks import BlockRule

Counts = NDArray[np.int64]
Stored = Literal["dense", "sparse", "panels"]

MISSES_FROM, MISSES_ALL = 0.85, 1.5
"""A loop over more than the first of a cache's sizes begins to miss, beyond the second one it misses always."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A linear layer as its cost sees it.

    counts [outputs] are the connections of each output; other_bytes are the weights of all other layers, which are
    read between two uses of this one. A layer that is stored dense has to be computed so; one with panels has outputs
    that share inputs, and panel_reads counts an input once for all outputs of a panel that share it. block_counts are
    the blocks of inputs of families that have not as many as usual.
    """

    inputs: int
    counts: Counts
    other_bytes: float = 0.0
    stored: Stored = "sparse"
    panel_reads: float = 0.0
    block_counts: Mapping[str, int] = field(default_factory=dict[str, int], kw_only=True)
    rounded: bool = field(default=False, kw_only=True)
    """Whether inputs and weights may be rounded to bfloat16."""
    code_bits: int = field(default=0, kw_only=True)
    """Bits of weights that are codes for which groups of inputs may be rounded to integers of eight bits; else 0."""

    def blocks(self, rule: BlockRule) -> int:
        """Return the number of blocks of inputs that the family of a rule has."""
        return self.block_counts.get(rule.family) or rule.usual(self.inputs, self.density)

    def with_blocks(self, block_counts: Mapping[str, int]) -> Self:
        """Return the same layer with other blocks for some families; what is known of it is shared."""
        other = copy(self)
        object.__setattr__(other, "block_counts", {**self.block_counts, **block_counts})
        return other

    @property
    def outputs(self) -> int:
        return len(self.counts)

    @property
    def connections(self) -> int:
        return int(self.counts.sum())

    @property
    def density(self) -> float:
        """The share of connections among all that there could be; 0 where there could be none."""
        return self.connections / max(1, self.inputs * self.outputs)

    @cached_property
    def spread(self) -> float:
        """The deviation of the outputs' connections over their mean; 0 where there are none."""
        return float(np.std(self.counts) / np.mean(self.counts)) if self.connections else 0.0

    def of_pattern(self, fact: Callable[[CsrPattern], float], otherwise: float) -> float:
        """Return the result of `fact` on the pattern, or `otherwise` without a pattern."""
        del fact
        return otherwise

    def segments(self, blocks: int, most: int) -> float:
        """Return how many segments of up to `most` connections rows have in `blocks` blocks of inputs."""
        return _segments(self, blocks, most)

    def x_share(self, tile: "Tile", *, by_count: bool = False) -> float:
        """Return the rows of x that the first-level cache misses, over those of a random mask.

        Outputs are computed one after the other, or those with fewer connections first.
        """
        del tile, by_count
        return 1.0

    def fullest(self, rows: int) -> Counts:
        """Return the largest count in each group of `rows` outputs, where outputs are sorted by count."""
        return np.sort(self.counts)[::-1][::rows]

    def counts_of_segments(self, blocks: int) -> float:
        """Return the different counts of segments, which spread by about five deviations.

        Each is a jump that was not predicted, and leaves a segment without a partner, or none.
        """
        mean = self.connections / max(1, self.outputs * blocks)
        return blocks * min(self.outputs / 2, 5 * mean**0.5 + 1)


class Tile(NamedTuple):
    """A tile of `width` columns, in vectors of `lanes` floats, and the first-level cache that its rows pass."""

    width: int
    lanes: int
    l1_bytes: int

    @property
    def passes(self) -> int:
        """Number of reads of each weight: one for each four vectors of columns."""
        return max(1, -(-self.width // (4 * self.lanes)))

    def passes_of(self, vectors: int) -> int:
        """Return how often weights are read by kernels of so many vectors at once, or of two without AVX-512."""
        return max(1, -(-self.width // ((vectors if self.lanes == 16 else 2) * self.lanes)))

    @property
    def line(self) -> float:
        """The columns in lines of 16 floats."""
        return self.width / 16

    def far_share(self, rows: float) -> float:
        """Return the share of `rows` rows, read again and again, that the first-level cache does not hold."""
        return misses(4 * self.width * rows, self.l1_bytes)

    def random_far_share(self, rows: float) -> float:
        """Return the share of rows, read at random among `rows`, that the first-level cache does not hold."""
        return max(0.0, 1 - self.l1_bytes / (4 * self.width * rows)) if rows else 0.0


class Work(NamedTuple):
    """Units of work in the order of a family's prices, and the bytes of weights and indices that it streams."""

    units: tuple[float, ...]
    stream_bytes: float
    passes: int = 1


def misses(loop_bytes: float, cache_bytes: float) -> float:
    """Return the share of a loop over `loop_bytes` that a cache of `cache_bytes` does not deliver, 0 to 1."""
    share = (loop_bytes / cache_bytes - MISSES_FROM) / (MISSES_ALL - MISSES_FROM)
    return min(1.0, max(0.0, share))


def _segments(layer: Layer, blocks: int, most: int) -> float:
    """Return how many segments of up to `most` connections rows have in `blocks` blocks, connections spread evenly."""
    tally = np.bincount(layer.counts)
    counts = np.flatnonzero(tally)
    mean = counts / blocks
    touched = -blocks * np.expm1(-mean) if blocks > 1 else np.ones(len(mean))
    further = np.zeros(len(mean))
    # counts in a block are about normal; a logistic curve with 0.55 of the deviation is the chance to pass a border
    spread = 0.55 * np.sqrt(mean * np.maximum(0.0, 1 - counts / max(1, layer.inputs))) + 1e-3
    for border in range(most, int(mean.max(initial=0)) + 2 * most, most):
        further += 1 / (1 + np.exp(np.clip((border + 0.5 - mean) / spread, -50, 50)))
    return float((touched + blocks * further) @ tally[counts])
