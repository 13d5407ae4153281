"""A set of integers 0 .. n - 1 that gives its largest member in a few steps: a tree of 32-bit words.

Bit i of a word says whether word (or member) i below it has a member. Marking and clearing rarely go beyond the first
level, since parents change only when a word becomes empty or stops being so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled


class MaxTree(NamedTuple):
    """Words of all levels, lowest level first, and where each level begins; the last level is one word."""

    words: NDArray[np.int64]
    starts: NDArray[np.int64]


def empty_set(count: int) -> MaxTree:
    """No member yet, room for 0 .. count - 1."""
    sizes: list[int] = []
    while not sizes or sizes[-1] > 1:
        sizes.append(max(1, ((sizes[-1] if sizes else count) + 31) >> 5))
    starts = np.cumsum([0, *sizes]).astype(np.int64)
    return MaxTree(np.zeros(starts[-1], dtype=np.int64), starts[:-1])


@compiled
def mark(tree: MaxTree, member: int) -> None:
    """Add a member."""
    for start in tree.starts:
        word = start + (member >> 5)
        before = tree.words[word]
        tree.words[word] = before | (1 << (member & 31))
        if before != 0:
            return
        member >>= 5


@compiled
def clear(tree: MaxTree, member: int) -> None:
    """Remove a member."""
    for start in tree.starts:
        word = start + (member >> 5)
        after = tree.words[word] & ~(1 << (member & 31))
        tree.words[word] = after
        if after != 0:
            return
        member >>= 5


@compiled
def is_marked(tree: MaxTree, member: int) -> bool:
    """Whether a number is a member."""
    return (tree.words[member >> 5] >> (member & 31)) & 1 == 1


@compiled
def largest(tree: MaxTree) -> int:
    """The largest member of a set that has one."""
    member = 0
    for level in range(len(tree.starts) - 1, -1, -1):
        start: int = tree.starts[level]
        word: int = tree.words[start + member]
        member = (member << 5) + _highest_bit(word)
    return member


@compiled
def _highest_bit(word: int) -> int:
    """Without branches: they would be as good as random."""
    bit = 0
    for shift in (4, 3, 2, 1, 0):
        step = int(word >> (1 << shift) != 0) << shift
        word >>= step
        bit += step
    return bit
