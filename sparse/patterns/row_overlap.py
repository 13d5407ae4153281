"""Whether rows have more inputs in common than chance: a question to a sample of them, with which most masks are done.

Of N rows, 8 N^(1/2) are drawn and compared with each other. Where half of all rows are in groups, even in pairs only,
16 pairs of one group are in the sample on average, and fewer than three of them once in 60 000 samples; taller groups
have far more. So a mask whose sample shows fewer pairs has no groups that matter, which is known without looking at the
rest of it. Rows are compared on some inputs, where they have many: enough to tell rows that share a fifth of theirs.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..csr import CsrPattern, Indices

ROWS: Final = 8
"""Rows of the sample, for the square root of all rows."""

LEAST_INPUTS: Final = 1024
LEAST_CONNECTIONS: Final = 32
"""Inputs on which rows are compared, at least, if there are so many, and connections that a row has there."""

SPARSE: Final = 1 / 64
"""Density below which lists of inputs are faster to compare than ones and zeros."""

DEVIATIONS: Final = 5.5
"""Standard deviations of the number of common inputs above that of random rows, from which rows overlap."""

FEW: Final = 1.5
"""Added to that: numbers far below 1 do not spread as many do."""

LEAST_SHARED: Final = 0.2
"""Share of the inputs of a row that one which overlaps it reads too: few are chance where there are many rows."""

BLOCK: Final = 64
"""Rows and inputs of matrices that are multiplied at once."""

FEWEST: Final = 3
"""Pairs of the sample that overlap, below which that is chance."""


class OverlapSample(NamedTuple):
    """Rows drawn at random of those that read anything, and what pairs of them have in common."""

    rows: Indices
    overlap: NDArray[np.bool_]
    """[rows, rows]: which have more in common than chance, none with itself."""
    touching: float
    """Share of the pairs that have an input in common, at least."""
    fewest: int
    """Overlapping pairs below which the overlap counts as chance; 0 where rows are few enough to compare all pairs."""

    @staticmethod
    def of(rows: CsrPattern, rng: np.random.Generator) -> "OverlapSample":
        """Draw a sample and compare its rows; time: a few passes over the connections of the sample."""
        filled = np.flatnonzero(rows.lengths)
        chosen = np.sort(rng.permutation(filled)[: round(ROWS * rows.row_count**0.5)])
        common, lengths, share = _common(rows, chosen, rng)
        chance = np.outer(lengths, lengths) * share
        least = np.maximum(2, LEAST_SHARED * np.minimum.outer(lengths, lengths))
        overlap = (common > chance + DEVIATIONS * np.sqrt(chance) + FEW) & (common >= least)
        np.fill_diagonal(overlap, val=False)
        pairs = max(1, len(chosen) * (len(chosen) - 1))
        touching = (np.count_nonzero(common) - np.count_nonzero(lengths)) / pairs
        return OverlapSample(chosen, overlap, touching, FEWEST if len(chosen) < len(filled) else 0)

    def is_random(self, chosen: Indices) -> bool:
        """Return whether the `chosen` rows, ascending, overlap hardly more than random ones."""
        inside = np.isin(self.rows, chosen, assume_unique=True)
        return int(np.count_nonzero(self.overlap[np.ix_(inside, inside)])) < 2 * self.fewest


def _common(rows: CsrPattern, chosen: Indices, rng: np.random.Generator) -> tuple[NDArray[np.float32], Indices, float]:
    """Return how many inputs any two rows share [chosen, chosen] and each has, and the chance of two to be one.

    Counted are the inputs looked at.
    """
    density = float(rows.lengths[chosen].sum()) / max(1, len(chosen) * rows.column_count)
    if density < SPARSE:
        from scipy.sparse import csr_array

        owner, inputs = rows.entries(chosen)
        readers = np.bincount(inputs, minlength=rows.column_count).astype(np.float64)
        lists = csr_array((np.ones(len(inputs), np.float32), (owner, inputs)), shape=(len(chosen), rows.column_count))
        return (lists @ lists.T).toarray(), rows.lengths[chosen], _chance(readers)
    wanted = min(rows.column_count, max(LEAST_INPUTS, round(LEAST_CONNECTIONS / density)))
    sampled = rng.permutation(rows.column_count)[:wanted]
    shape = [-(-count // BLOCK) * BLOCK for count in (len(chosen), wanted)]
    # inputs that are not looked at come behind the others, where they are cut off
    place = np.full(rows.column_count, wanted)
    place[sampled] = np.arange(wanted)
    owner, inputs = rows.entries(chosen)
    seen = np.zeros((len(chosen), wanted + 1), dtype=np.float32)
    seen[owner, place[inputs]] = 1
    grid = np.zeros(shape, dtype=np.float32)
    grid[: len(chosen), :wanted] = seen[:, :wanted]
    common = _product(grid)[: len(chosen), : len(chosen)]
    return common, common.diagonal().astype(np.int64), _chance(grid.sum(axis=0, dtype=np.float64))


def _product(grid: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the grid times its transpose, in blocks that are too small to be shared by threads.

    On a busy machine threads wait for each other ten times longer than the product takes.
    """
    rows, columns = (count // BLOCK for count in grid.shape)
    parts = np.ascontiguousarray(grid.reshape(rows, BLOCK, columns, BLOCK).transpose(2, 0, 1, 3))
    total = np.zeros((rows, rows, BLOCK, BLOCK), dtype=np.float32)
    for part in parts:
        total += part[:, None] @ part[None].swapaxes(2, 3)
    return total.swapaxes(1, 2).reshape(len(grid), len(grid))


def _chance(readers: NDArray[np.float64]) -> float:
    """Return the probability that the inputs of two connections are the same one, given how many each input has."""
    connections = float(readers.sum())
    return float((readers * (readers - 1)).sum()) / max(1.0, connections * (connections - 1))
