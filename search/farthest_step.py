"""A set of places 0 .. n - 1 that gives its largest member in a few steps: a tree of 32-bit words.

Bit i of a word says whether word (or place) i below it has a member. Marking and clearing rarely go beyond the first
level, since parents change only when a word becomes empty or stops being so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class PlaceSet(NamedTuple):
    """Words of all levels, lowest level first, and where each level begins; the last level is one word."""

    words: NDArray[np.int64]
    starts: NDArray[np.int64]


@njit(cache=True, nogil=True)
def empty_place_set(count: int) -> PlaceSet:
    """No member yet, room for 0 .. count - 1."""
    starts = np.zeros(14, dtype=np.int64)
    level_count, size, total = 0, count, 0
    while level_count == 0 or size > 1:
        size = (size + 31) >> 5
        starts[level_count] = total
        total += max(size, 1)
        level_count += 1
    return PlaceSet(np.zeros(total, dtype=np.int64), starts[:level_count].copy())


@njit(cache=True, nogil=True)
def mark(places: PlaceSet, place: int) -> None:
    """Add a place."""
    for start in places.starts:
        word = start + (place >> 5)
        before = places.words[word]
        places.words[word] = before | (1 << (place & 31))
        if before != 0:
            return
        place >>= 5


@njit(cache=True, nogil=True)
def clear(places: PlaceSet, place: int) -> None:
    """Remove a place."""
    for start in places.starts:
        word = start + (place >> 5)
        after = places.words[word] & ~(1 << (place & 31))
        places.words[word] = after
        if after != 0:
            return
        place >>= 5


@njit(cache=True, nogil=True)
def is_marked(places: PlaceSet, place: int) -> bool:
    """Whether the place is a member."""
    return (places.words[place >> 5] >> (place & 31)) & 1 == 1


@njit(cache=True, nogil=True)
def largest(places: PlaceSet) -> int:
    """The largest member of a set that has one."""
    place = 0
    for level in range(len(places.starts) - 1, -1, -1):
        start: int = places.starts[level]
        word: int = places.words[start + place]
        place = (place << 5) + _highest_bit(word)
    return place


@njit(cache=True, nogil=True)
def _highest_bit(word: int) -> int:
    """Without branches: they would be as good as random."""
    bit = 0
    for shift in (4, 3, 2, 1, 0):
        step = int(word >> (1 << shift) != 0) << shift
        word >>= step
        bit += step
    return bit
