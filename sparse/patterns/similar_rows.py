"""Neurons that read the same inputs, or nearly the same: found by hashing, without comparing all pairs.

Equal lists of inputs have equal fingerprints. Nearly equal ones agree in most entries of a MinHash signature (with one
permutation): the inputs are put in a random order that is cut into ranges, and an entry is the first input of the list
in a range. Two lists agree in an entry about as often as an input of either is one of both, their Jaccard similarity J:
the first of all their inputs in the range is equally likely to be any of them. Two entries agree with probability J^2,
r of them with J^r, so that bands of r entries separate similar lists from those of random masks, whose J is smaller,
once (number of rows) * (random J)^r < 1.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..csr import CsrPattern, Indices
from ..fingerprints import equal_lists, first_equal, scrambled, sums_between
from .row_overlap import OverlapSample

SIGNATURE = 64
"""Entries of a signature."""

LONGEST_BAND = 8

LOOKED_AT = 16
"""Inputs of a row by which most rows are told apart."""

LOOKED_AT_TOGETHER = 1 << 16
"""Pairs of rows whose signatures are compared at once."""

LEAST_SIMILARITY = 0.35
"""J from which rows count as similar: lists that share half of their inputs have a J of a third."""

HEIGHTS = (8, 4, 2)
"""Rows of a panel, the most first."""

LEAST_GROUPED = 4
"""Rows of a group that kernels take together."""

LEAST_SHARED = 0.4
"""Share of the connections that a panel's rows must have in common."""


MOST_PAIRS: Final = 1 << 23
"""Pairs of panels with an input in common above which all panels have some in common, and any order does."""


class Panel(NamedTuple):
    """Rows that are computed together, and how many inputs all of them read."""

    rows: tuple[int, ...]
    shared: int


def panels_of(
    rows: CsrPattern, alike: Indices, sample: OverlapSample, rng: np.random.Generator, *, least: float = 0.0
) -> list[Panel]:
    """Return disjoint panels of rows that share inputs, the tallest first; rows that overlap no other are in none.

    Equal rows, which `alike` of `first_alike` tells, are always found, others where a `sample` shows that
    there are some. There are no panels where these share less than `least` of all connections.
    """
    left = np.flatnonzero(rows.lengths > 0)
    panels, rest = _panels_of_equal_rows(rows, left, alike[left])
    similar = [] if sample.is_random(rest) else similar_rows(rows, rest, rng)
    # rows share no more than they have, which in small random masks tells that there is nothing to cut
    within = sum(int(rows.lengths[members].sum()) for members in similar)
    if shared_connections(panels) + within < least * len(rows.indices):
        return []
    panels += _cut([nearest_together(rows, members) for members in similar], rows)
    if shared_connections(panels) < least * len(rows.indices):
        return []
    ordered: list[Panel] = []
    for height in HEIGHTS:
        same = sorted(panel for panel in panels if len(panel.rows) == height)
        order = shared_inputs_order(rows, np.array([panel.rows[0] for panel in same], dtype=np.int64))
        ordered += [same[member] for member in order]
    return ordered


def shared_connections(panels: Sequence[Panel]) -> int:
    """Return the connections that go to inputs which a whole panel reads."""
    return sum(len(panel.rows) * panel.shared for panel in panels)


def shared_inputs_order(rows: CsrPattern, members: Indices) -> Indices:
    """Return an order of panels, [panels], in which each reads inputs that are in the cache since the one before it.

    `members` are one row of each. Panels are neighbours where these have inputs in common. The walk goes on to the
    neighbour not yet visited with the most common inputs, and begins anew at the first panel left where there is none:
    equal panels come together, and the panels of a ring, as in butterflies and RadiX-Nets, follow it around.
    """
    if len(members) < 2:
        return np.arange(len(members))
    from scipy.sparse import csr_array

    owner, inputs = rows.entries(members)
    readers = np.bincount(inputs, minlength=rows.column_count)
    if int(np.square(readers).sum()) > MOST_PAIRS:
        return np.arange(len(members))
    reads = csr_array((np.ones(len(inputs), np.int32), (owner, inputs)), shape=(len(members), rows.column_count))
    common = reads @ reads.T
    panel = np.repeat(np.arange(len(members)), np.diff(common.indptr))
    most_first = np.lexsort((common.indices, -common.data, panel))
    return np.array(_walk(common.indptr.tolist(), common.indices[most_first].tolist()), dtype=np.int64)


def _walk(starts: Sequence[int], neighbours: Sequence[int]) -> list[int]:
    """Return all panels in the order of the walk; those of panel n are `neighbours[starts[n] : starts[n + 1]]`."""
    left = [True] * (len(starts) - 1)
    order: list[int] = []
    for first in range(len(left)):
        panel: int | None = first if left[first] else None
        while panel is not None:
            left[panel] = False
            order.append(panel)
            panel = next((one for one in neighbours[starts[panel] : starts[panel + 1]] if left[one]), None)
    return order


def panels_of_groups(rows: CsrPattern, labels: Indices) -> list[Panel]:
    """Return a panel for each group of rows that read anything, up to a multiple of `LEAST_GROUPED`, the tallest first.

    labels [rows] says which group a row is in.
    """
    panels: list[Panel] = []
    filled = np.flatnonzero(rows.lengths)
    for members in _classes(labels[filled], filled):
        taken = members[: len(members) // LEAST_GROUPED * LEAST_GROUPED]
        if len(taken):
            panels.append(Panel(tuple(taken.tolist()), len(shared_inputs(rows, taken))))
    return sorted(panels, key=lambda panel: (-len(panel.rows), panel.rows))


def _panels_of_equal_rows(rows: CsrPattern, chosen: Indices, leaders: Indices) -> tuple[list[Panel], Indices]:
    """Return panels of the tallest height of `chosen` rows with one leader each, and the rows that are left."""
    height = HEIGHTS[0]
    order = np.lexsort((chosen, leaders))
    inside = _are_in_groups(leaders[order], height)
    members = chosen[order][inside].reshape(-1, height)
    shared = rows.lengths[members[:, 0]].tolist()
    panels = [Panel(tuple(one), count) for one, count in zip(members.tolist(), shared, strict=True)]
    return panels, np.sort(chosen[order][~inside])


def _are_in_groups(labels: Indices, size: int) -> NDArray[np.bool_]:
    """Return which of the entries, equal labels one behind the other, are in a group of `size` of their label."""
    _, starts, counts = np.unique(labels, return_index=True, return_counts=True)
    rank = np.arange(len(labels)) - np.repeat(starts, counts)
    return rank < np.repeat(counts - counts % size, counts)


def _cut(classes: list[Indices], rows: CsrPattern) -> list[Panel]:
    """Return panels of neighbours in each of some classes, as tall as rows share enough."""
    members = np.concatenate([np.zeros(0, dtype=np.int64), *classes])
    labels = np.repeat(np.arange(len(classes)), [len(one) for one in classes])
    lengths, panels = rows.lengths, list[Panel]()
    for height in HEIGHTS:
        rest = ~_are_in_groups(labels, height)
        whole = members[~rest].reshape(-1, height)
        shared = _shared_counts(rows, whole)
        fit = height * shared >= LEAST_SHARED * lengths[whole].sum(axis=1)
        taken = zip(whole[fit].tolist(), shared[fit].tolist(), strict=True)
        panels += [Panel(tuple(one), count) for one, count in taken]
        rest[~rest] = np.repeat(~fit, height)
        members, labels = members[rest], labels[rest]
    return panels


def _shared_counts(rows: CsrPattern, panels: Indices) -> Indices:
    """Return how many inputs all rows of each panel read, [panels]; panels are row numbers [panels, height]."""
    count, height = panels.shape
    owner, inputs = rows.entries(panels.ravel())
    read, times = np.unique(owner // height * rows.column_count + inputs, return_counts=True)
    return np.bincount(read[times == height] // rows.column_count, minlength=count)


def shared_inputs(rows: CsrPattern, members: Indices) -> Indices:
    """Return the inputs that all of `members` read, ascending."""
    together = np.concatenate([rows.of(int(row)) for row in members])
    inputs, counts = np.unique(together, return_counts=True)
    return inputs[counts == len(members)]


def first_alike(rows: CsrPattern[np.integer]) -> Indices:
    """Return for each row the first one that reads the same inputs, [rows]."""
    words = scrambled(rows.column_count)
    # the number of inputs is a part of the fingerprint; some of the inputs tell most rows apart
    prints = rows.lengths.astype(np.uint64)
    filled = np.flatnonzero(rows.lengths)
    sampled = rows.pointers[filled, None] + (rows.lengths[filled, None] - 1) * np.arange(LOOKED_AT) // (LOOKED_AT - 1)
    prints[filled] += words[rows.indices[sampled]] @ scrambled(LOOKED_AT)
    _, inverse, counts = np.unique(prints, return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(counts[inverse] > 1)
    _, inputs = rows.entries(candidates)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(rows.lengths[candidates])))
    prints[candidates] += sums_between(ends, words[inputs])
    return first_equal(prints, candidates, lambda pairs: equal_lists(rows.pointers, [rows.indices], pairs))


def similar_rows(rows: CsrPattern, chosen: Indices, rng: np.random.Generator) -> list[Indices]:
    """Return classes of two or more of the `chosen` rows: each row is similar to another one of its class."""
    if len(chosen) < 2:
        return []
    signatures = _signatures(rows, chosen, rng)
    random = random_similarity(rows)
    least = min(max(LEAST_SIMILARITY, 1.5 * random), 0.9)
    length = int(min(LONGEST_BAND, max(1, np.ceil(np.log(len(chosen)) / -np.log(random)))))
    pairs = _equal_bands(signatures, length)
    parts = np.array_split(pairs, pairs.shape[1] // LOOKED_AT_TOGETHER + 1, axis=1)
    similar = [(signatures[one] == signatures[other]).mean(axis=1) >= least for one, other in parts]
    found = pairs[:, np.concatenate(similar)]
    return [members for members in _classes(_joined(found, len(chosen)), chosen) if len(members) > 1]


def _joined(pairs: Indices, count: int) -> Indices:
    """Return the first of all rows that `pairs` [2, pairs] join each of `count` rows with, by any number of steps."""
    first = np.arange(count)
    while True:
        lower = first[pairs].min(axis=0)
        before = first.copy()
        for side in pairs:
            np.minimum.at(first, before[side], lower)
        first = first[first]
        if np.array_equal(first, before):
            return first


def _equal_bands(signatures: NDArray[np.int32], length: int) -> Indices:
    """Return pairs [2, pairs] of rows with an equal band of entries, each with the next one of all that have it."""
    bands = signatures[:, : SIGNATURE // length * length].reshape(len(signatures), -1, length)
    prints = np.ascontiguousarray((bands.astype(np.uint64) @ scrambled(length)).T)
    order = np.argsort(prints, axis=1, kind="stable")
    ascending = np.take_along_axis(prints, order, axis=1)
    equal = ascending[:, 1:] == ascending[:, :-1]
    return np.stack([order[:, :-1][equal], order[:, 1:][equal]])


def random_similarity(rows: CsrPattern) -> float:
    """Return the J of two random rows of this density d: d^2 over 2 d - d^2."""
    density = len(rows.indices) / max(1, rows.row_count * rows.column_count)
    return min(max(density / (2 - density), 1e-6), 0.99)


def nearest_together(rows: CsrPattern, members: Indices) -> Indices:
    """Return the members of a class in an order in which the rows of a panel share many inputs.

    The first row left and those nearest to it come next, as many as the tallest panel has.
    """
    height, count = HEIGHTS[0], len(members)
    if count <= height:
        return members
    owner, inputs = rows.entries(members)
    by_input = np.argsort(inputs, kind="stable")
    readers, ends = owner[by_input], np.searchsorted(inputs[by_input], np.arange(rows.column_count + 1))
    lengths, is_left, order = rows.lengths[members], np.ones(count, dtype=np.bool_), list[Indices]()
    first = 0
    for _ in range((count - 1) // height):
        first += int(is_left[first:].argmax())
        own = rows.of(int(members[first]))
        around = np.concatenate([readers[:0], *(readers[ends[one] : ends[one + 1]] for one in own)])
        near, common = np.unique(around[is_left[around]], return_counts=True)
        similarity = common / (lengths[near] + lengths[first] - common)
        nearest = near[np.argsort(-similarity, kind="stable")[:height]]
        is_left[nearest] = False
        if len(nearest) < height:
            others = first + np.flatnonzero(is_left[first:])[: height - len(nearest)]
            nearest, is_left[others] = np.append(nearest, others), False
        order.append(np.sort(nearest))
    return members[np.concatenate([*order, np.flatnonzero(is_left)])]


def _signatures(rows: CsrPattern, chosen: Indices, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the signatures [chosen, SIGNATURE]; a range without inputs takes the entry of the next one that has some.

    Rows without any inputs are alike.
    """
    sampled = rng.permutation(rows.column_count)
    owner, inputs = rows.entries(chosen)
    member = sampled[inputs]
    cell = owner * SIGNATURE + member * SIGNATURE // rows.column_count
    signatures = np.full(len(chosen) * SIGNATURE, rows.column_count, dtype=np.int32)
    # the last write wins: the smallest place is written last
    order = np.argsort(-member, kind="stable")
    signatures[cell[order]] = member[order]
    entries_of = signatures.reshape(len(chosen), SIGNATURE)
    place = np.where(entries_of < rows.column_count, np.arange(SIGNATURE), 2 * SIGNATURE)
    backwards = np.hstack([place, place + SIGNATURE])[:, ::-1]
    following = np.minimum.accumulate(backwards, axis=1)[:, : SIGNATURE - 1 : -1] % SIGNATURE
    return np.take_along_axis(entries_of, following, axis=1)


def _classes(labels: Indices, members: Indices) -> list[Indices]:
    """Return the members of each label, ascending, by the first of them."""
    order = np.lexsort((members, labels))
    ends = np.flatnonzero(np.diff(labels[order])) + 1
    return sorted(np.split(members[order], ends), key=lambda some: int(some[0])) if len(members) else []
