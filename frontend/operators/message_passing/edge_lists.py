"""Edges as converters read them: indices counted from the front, and names by which equal graphs are one."""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ....sparse.edges import EdgeList
from ..conversion import NotCovered

Indices = NDArray[np.int64]


def counted(index: Indices, count: int) -> Indices:
    """Return indices counted from the front.

    Raises:
        NotCovered: one is outside the nodes.
    """
    if len(index) and not -count <= index.min() <= index.max() < count:
        wrong = index.max() if index.max() >= count else index.min()
        raise NotCovered(f"index {wrong} of {count} nodes, accepted are {-count} to {count - 1}")
    return np.where(index < 0, index + count, index)


def digest(edges: EdgeList) -> str:
    """Return a name by which equal graphs share one constant."""
    found = blake2b(edges.sources.tobytes(), digest_size=6)
    found.update(edges.targets.tobytes())
    if edges.weights is not None:
        found.update(edges.weights.tobytes())
    return found.hexdigest()
