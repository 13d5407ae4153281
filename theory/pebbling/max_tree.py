"""A set of places 0 .. n - 1 that gives its largest member in a few steps: a tree of 32-bit words.

Bit i of a word says whether word (or place) i below it has a member. Marking and clearing rarely go beyond the first
level, since parents change only when a word becomes empty or stops being so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.theory.compiled import compiled


class PlaceSet(NamedTuple):
    """Words of all levels, lowest level first, and where each level begins; the last level is one word."""

    words: NDArray[np.int64]
    starts: NDArray[np.int64]


def empty_place_set(count: int) -> PlaceSet:
    """No member yet, room for 0 .. count - 1."""
    sizes: list[int] = []
    while not sizes or sizes[-1] > 1:
        sizes.append(max(1, ((sizes[-1] if sizes else count) + 31) >> 5))
    starts = np.cumsum([0, *sizes]).astype(np.int64)
    return PlaceSet(np.zeros(starts[-1], dtype=np.int64), starts[:-1])


@compiled
def mark(places: PlaceSet, place: int) -> None:
    """Add a place."""
    for start in places.starts:
        word = start + (place >> 5)
        before = places.words[word]
        places.words[word] = before | (1 << (place & 31))
        if before != 0:
            return
        place >>= 5


@compiled
def clear(places: PlaceSet, place: int) -> None:
    """Remove a place."""
    for start in places.starts:
        word = start + (place >> 5)
        after = places.words[word] & ~(1 << (place & 31))
        places.words[word] = after
        if after != 0:
            return
        place >>= 5


@compiled
def is_marked(places: PlaceSet, place: int) -> bool:
    """Whether the place is a member."""
    return (places.words[place >> 5] >> (place & 31)) & 1 == 1


@compiled
def largest(places: PlaceSet) -> int:
    """The largest member of a set that has one."""
    place = 0
    for level in range(len(places.starts) - 1, -1, -1):
        start: int = places.starts[level]
        word: int = places.words[start + place]
        place = (place << 5) + _highest_bit(word)
    return place


@compiled
def _highest_bit(word: int) -> int:
    """Without branches: they would be as good as random."""
    bit = 0
    for shift in (4, 3, 2, 1, 0):
        step = int(word >> (1 << shift) != 0) << shift
        word >>= step
        bit += step
    return bit
