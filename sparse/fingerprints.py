"""Numbers that are equal for equal lists and hardly ever for different ones: sorting them finds what is equal."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Prints = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Pairs = tuple[Indices, Indices]

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


def first_equal(prints: Prints, candidates: Indices, equal: Callable[[Pairs], Mask]) -> Indices:
    """Return for each thing the first of the `candidates`, ascending, that is equal to it, itself where none is.

    `equal` compares pairs. A thing is compared with the first thing of its fingerprint: collisions are too rare to cost
    anything.
    """
    first = np.arange(len(prints))
    order = candidates[np.argsort(prints[candidates], kind="stable")]
    is_first = np.append(True, prints[order[1:]] != prints[order[:-1]])[: len(order)]
    leaders = order[np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))]
    leaders, others = leaders[~is_first], order[~is_first]
    same = equal((leaders, others))
    first[others[same]] = leaders[same]
    return first


def equal_lists(pointers: Indices, entries: Sequence[NDArray[np.generic]], pairs: Pairs) -> Mask:
    """Return for each pair of lists whether they are equal, [pairs].

    List n is `pointers[n]` to `pointers[n + 1]` of each of the `entries`.
    """
    lengths = np.diff(pointers)
    same = lengths[pairs[0]] == lengths[pairs[1]]
    left, right = (side[same] for side in pairs)
    ends = np.cumsum(lengths[left])
    owner = np.repeat(np.arange(len(left)), lengths[left])
    within = np.arange(len(owner)) - (ends - lengths[left])[owner]
    differ = np.zeros(len(owner), dtype=bool)
    for array in entries:
        differ |= array[pointers[left][owner] + within] != array[pointers[right][owner] + within]
    same[np.flatnonzero(same)[owner[differ]]] = False
    return same
