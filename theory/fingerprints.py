"""Numbers that are equal for equal lists and hardly ever for different ones: sorting them finds what is equal."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Prints = NDArray[np.uint64]

GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
MIXER: Final = np.uint64(0xBF58476D1CE4E5B9)


def scrambled(count: int) -> Prints:
    """Return `count` different odd numbers without a pattern that sums could share: multiples of the golden ratio."""
    words = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    words ^= words >> np.uint64(29)
    return words * MIXER | np.uint64(1)


def sums_between(pointers: Indices, words: Prints) -> Prints:
    """Return the sums of `words[pointers[n] : pointers[n + 1]]` modulo 2^64."""
    ends = np.concatenate((np.zeros(1, np.uint64), np.cumsum(words)))
    return ends[pointers[1:]] - ends[pointers[:-1]]


def first_equal(prints: Prints, candidates: Indices, equal: Callable[[int, int], bool]) -> Indices:
    """Return for each thing the first of the `candidates` that is `equal` to it, itself where it is none or alone.

    Only things with one fingerprint are compared. Different ones among them are so rare that comparing with the first
    alone loses nothing.
    """
    first = np.arange(len(prints))
    order = candidates[np.argsort(prints[candidates], kind="stable")]
    for place in np.flatnonzero(prints[order[:-1]] == prints[order[1:]]):
        leader, one = int(first[order[place]]), int(order[place + 1])
        if equal(leader, one):
            first[one] = leader
    return first
