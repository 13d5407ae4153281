"""Limits of a model beyond the bytes that it holds: a file of a hundred bytes must not fill the memory."""

from collections.abc import Sequence
from math import prod
from typing import Final

from .errors import TooManyNodesError, UnsupportedModelError

MADE_BYTES: Final = 1 << 30
"""Bytes that may be made of nothing: by constant folding in all, or as the zeros of one sparse tensor."""

GROWTH: Final = 16
"""Bytes that may be made of each byte that the model holds, beside `MADE_BYTES`."""

WIDEST: Final = 1 << 26
"""Rows and columns of a sparse matrix, each of which takes some bytes however few entries it has."""

MOST_ENTRIES: Final = 1 << 26
"""Entries of a sparse matrix that are computed from fewer."""

MADE_NODES: Final = 50_000
"""Nodes that functions may be written out as, beside `GROWTH` for each that the model holds: code takes a millisecond
or two for each."""


def check_made_nodes(count: int, held: int) -> None:
    """Check how many nodes a graph of `held` nodes has once its functions are written out, before it is translated.

    Raises:
        TooManyNodesError: they are far more than it holds, and would take minutes.
    """
    accepted = MADE_NODES + GROWTH * held
    if count > accepted:
        raise TooManyNodesError(
            f"expected at most {accepted} nodes for the {held} of the graph, got {count} with functions written out"
        )


def allowance(held: int) -> int:
    """Return the bytes that may be made of `held` bytes."""
    return MADE_BYTES + GROWTH * held


def check_made(name: str, shape: Sequence[int], item_bytes: int, held: int) -> None:
    """Check the size of a tensor that is written out from `held` bytes.

    Raises:
        UnsupportedModelError: it is more than they allow.
    """
    size = prod(shape) * item_bytes
    if size > allowance(held):
        raise UnsupportedModelError(
            f"sparse tensor {name}: expected at most {allowance(held)} bytes for the {held} it holds, got {size}"
        )


def check_width(name: str, shape: Sequence[int]) -> None:
    """Check the shape of a sparse matrix.

    Raises:
        UnsupportedModelError: it has too many rows or columns.
    """
    if max(shape, default=0) > WIDEST:
        raise UnsupportedModelError(f"sparse tensor {name}: expected sizes up to {WIDEST}, got shape {list(shape)}")
