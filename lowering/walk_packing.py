"""Making walks: a sequence of blocks for every panel of rows, and the step of the walk that takes each entry.

Each row is placed by itself. A step can take one entry of a row, from either of its two blocks; so to place as many
entries as possible is a bipartite matching of entries with steps, and adding one step raises it by at most one. It is
kept at its maximum for the walk so far by an augmenting path: the new step takes an entry of a block whose entries all
have steps, the step that had it changes to its other block, and so on to a block with an entry that is left over.
A search that fails has seen only blocks without such a path, now and for ever; they are dead and not searched again.

The next block is the one that most rows without an entry in the present block can use, where rows with many entries
left count most, as the row with most of them decides how many gathers follow.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from redpebble.dialect.tensors import CscMatrix

BLOCK: Final = 16
"""Values of x in a block: a vector of AVX-512."""
PANEL_ROWS: Final = 32
CHUNK_STEPS: Final = 6
"""Steps that share a word of lookup places a row: walks are whole chunks long."""
FIELD_BITS: Final = 5

L2_BYTES: Final = 3 << 19
"""Packed entries up to which the kernel finds them in the L2 cache, call after call."""
GATHER_COST: Final = 3.0
"""Steps of a walk in the time of a gather for every row of a panel, where both come from L2."""
GATHER_COST_BEYOND: Final = 1.7
"""The same beyond L2, where the ratio of their bytes decides."""
BYTES_PER_ENTRY: Final = 6

URGENCY: Final = 6
"""The weight of a row is the sixth power of the share of its entries left, in those of the row with most of them."""
SUPPLY: Final = 0.02
"""The part that a block's entries left have in its value, in rows served at once."""
REPEAT: Final = 0.1
"""The part that a block has for every row with more than one of its entries left."""
LEAST_CANDIDATES: Final = 128
"""Blocks compared for each step, so that the time for an entry does not grow with the inputs."""

Counts = NDArray[np.int32]
Ids = NDArray[np.int64]
Words = NDArray[np.uint32]


class Panel(NamedTuple):
    """Up to 32 rows: entry pointers [32, 2], the inputs and the weights of all entries, and each row's [32, blocks]."""

    spans: Ids
    inputs: Ids
    weights: NDArray[np.float32]
    counts: Counts


class State(NamedTuple):
    """A panel while steps are added: what is left and where the entries went.

    remaining [blocks, 32] and left [32] count entries without a step; taken [32, steps] is the block a step serves, or
    -1; dead [32, blocks]; last [blocks] is the latest position of a block in the walk, earlier [steps + 1] the one
    before each position, or -1.
    """

    walk: Ids
    remaining: Counts
    left: Counts
    taken: Counts
    dead: NDArray[np.bool_]
    last: Ids
    earlier: Ids


class Search(NamedTuple):
    """Room for a breadth-first search over blocks: the step that reached each, the queue, and the search it was in."""

    reached_by: Ids
    queue: Ids
    mark: Ids
    """[blocks + 1], the last is the number of searches."""
