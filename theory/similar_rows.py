"""Neurons that read the same inputs, or nearly the same: found by hashing, without comparing all pairs.

Equal lists of inputs have equal fingerprints. Nearly equal ones agree in most entries of a MinHash signature (with one
permutation): the inputs are put in a random order that is cut into ranges, and an entry is the first input of the list
in a range. Two lists agree in an entry about as often as an input of either is one of both, their Jaccard similarity J:
the first of all their inputs in the range is equally likely to be any of them. Two entries agree with probability J^2,
r of them with J^r, so that bands of r entries separate similar lists from those of random masks, whose J is smaller,
once (number of rows) * (random J)^r < 1.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.theory.company import Company
from redpebble.theory.fingerprints import equal_lists, first_equal, scrambled, sums_between
from redpebble.theory.panel_order import shared_inputs_order
from redpebble.theory.row_lists import Indices, Rows

SIGNATURE = 64
"""Entries of a signature."""

LONGEST_BAND = 8

LOOKED_AT = 16
"""Inputs of a row by which most rows are told apart."""

LEAST_SIMILARITY = 0.35
"""J from which rows count as similar: lists that share half of their inputs have a J of a third."""

HEIGHTS = (8, 4, 2)
"""Rows of a panel, the most first."""

LEAST_GROUPED = 4
"""Rows of a group that kernels take together."""

LEAST_SHARED = 0.4
"""Share of the connections that a panel's rows must have in common."""


class Panel(NamedTuple):
    """Rows that are computed together, and how many inputs all of them read."""

    rows: tuple[int, ...]
    shared: int


def panels_of(rows: Rows, alike: Indices, company: Company, rng: np.random.Generator) -> list[Panel]:
    """Return disjoint panels of rows that share inputs, the tallest first; rows without company are in none.

    Equal rows, which `alike` of `first_alike` tells, are always found, others where a sample, `company`, shows that
    there are some.
    """
    left = np.flatnonzero(rows.lengths > 0)
    panels, rest = _panels_of_equal_rows(rows, left, alike[left])
    for members in [] if company.is_chance(rest) else similar_rows(rows, rest, rng):
        _cut(nearest_together(rows, members), rows, panels)
    ordered: list[Panel] = []
    for height in HEIGHTS:
        same = sorted(panel for panel in panels if len(panel.rows) == height)
        order = shared_inputs_order(rows, np.array([panel.rows[0] for panel in same], dtype=np.int64))
        ordered += [same[place] for place in order]
    return ordered


def panels_of_groups(rows: Rows, labels: Indices) -> list[Panel]:
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


def _panels_of_equal_rows(rows: Rows, chosen: Indices, leaders: Indices) -> tuple[list[Panel], Indices]:
    """Return panels of the tallest height of `chosen` rows with one leader each, and the rows that are left."""
    height = HEIGHTS[0]
    order = np.lexsort((chosen, leaders))
    _, starts, sizes = np.unique(leaders[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    inside = rank < np.repeat(sizes - sizes % height, sizes)
    members = chosen[order][inside].reshape(-1, height)
    shared = rows.lengths[members[:, 0]].tolist()
    panels = [Panel(tuple(one), count) for one, count in zip(members.tolist(), shared, strict=True)]
    return panels, np.sort(chosen[order][~inside])


def _cut(members: Indices, rows: Rows, panels: list[Panel]) -> None:
    """Cut panels off `members`, as long as they share enough."""
    for height in HEIGHTS:
        refused: list[Indices] = []
        while len(members) >= height:
            taken, members = members[:height], members[height:]
            shared = shared_inputs(rows, taken)
            connections = int(rows.lengths[taken].sum())
            if height * len(shared) >= LEAST_SHARED * connections:
                panels.append(Panel(tuple(taken.tolist()), len(shared)))
            else:
                refused.append(taken)
        members = np.concatenate([members, *refused])


def shared_inputs(rows: Rows, members: Indices) -> Indices:
    """Return the inputs that all of `members` read, ascending."""
    together = np.concatenate([rows.of(int(row)) for row in members])
    inputs, counts = np.unique(together, return_counts=True)
    return inputs[counts == len(members)]


def first_alike(rows: Rows) -> Indices:
    """Return for each row the first one that reads the same inputs, [rows]."""
    words = scrambled(rows.input_count)
    # the number of inputs is a part of the fingerprint; some of the inputs tell most rows apart
    prints = rows.lengths.astype(np.uint64)
    filled = np.flatnonzero(rows.lengths)
    places = rows.pointers[filled, None] + (rows.lengths[filled, None] - 1) * np.arange(LOOKED_AT) // (LOOKED_AT - 1)
    prints[filled] += words[rows.inputs[places]] @ scrambled(LOOKED_AT)
    _, inverse, counts = np.unique(prints, return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(counts[inverse] > 1)
    _, inputs = rows.entries(candidates)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(rows.lengths[candidates])))
    prints[candidates] += sums_between(ends, words[inputs])
    return first_equal(prints, candidates, lambda pairs: equal_lists(rows.pointers, [rows.inputs], pairs))


def similar_rows(rows: Rows, chosen: Indices, rng: np.random.Generator) -> list[Indices]:
    """Return classes of two or more of the `chosen` rows: each row is similar to another one of its class."""
    if len(chosen) < 2:
        return []
    signatures = _signatures(rows, chosen, rng)
    leaders = np.arange(len(chosen))
    random = random_similarity(rows)
    least = min(max(LEAST_SIMILARITY, 1.5 * random), 0.9)
    length = int(min(LONGEST_BAND, max(1, np.ceil(np.log(len(chosen)) / -np.log(random)))))
    for start in range(0, SIGNATURE - length + 1, length):
        band = signatures[:, start : start + length]
        order = np.lexsort(band.T)
        equal = (band[order[1:]] == band[order[:-1]]).all(axis=1)
        pairs = np.column_stack([order[:-1][equal], order[1:][equal]])
        similarity = (signatures[pairs[:, 0]] == signatures[pairs[:, 1]]).mean(axis=1)
        for left, right in pairs[similarity >= least]:
            _join(leaders, int(left), int(right))
    roots = np.array([_root(leaders, row) for row in range(len(chosen))])
    return [members for members in _classes(roots, chosen) if len(members) > 1]


def random_similarity(rows: Rows) -> float:
    """Return the J of two random rows of this density d: d^2 over 2 d - d^2."""
    density = len(rows.inputs) / max(1, rows.row_count * rows.input_count)
    return min(max(density / (2 - density), 1e-6), 0.99)


def nearest_together(rows: Rows, members: Indices) -> Indices:
    """Return the members of a class in an order in which the rows of a panel share many inputs.

    The first row left and those nearest to it come next, as many as the tallest panel has.
    """
    height, order, left = HEIGHTS[0], list[int](), members
    mask = np.zeros(rows.input_count, dtype=bool)
    while len(left) > height:
        mask[:] = False
        mask[rows.of(int(left[0]))] = True
        common = np.array([np.count_nonzero(mask[rows.of(int(row))]) for row in left])
        lengths = rows.lengths[left]
        nearest = np.argsort(-common / (lengths + lengths[0] - common), kind="stable")[:height]
        order.extend(left[np.sort(nearest)].tolist())
        left = np.delete(left, nearest)
    return np.array([*order, *left.tolist()], dtype=np.int64)


def _signatures(rows: Rows, chosen: Indices, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the signatures [chosen, SIGNATURE]; a range without inputs takes the entry of the next one that has some.

    Rows without any inputs are alike.
    """
    places = rng.permutation(rows.input_count)
    owner, inputs = rows.entries(chosen)
    place = places[inputs]
    cell = owner * SIGNATURE + place * SIGNATURE // rows.input_count
    signatures = np.full(len(chosen) * SIGNATURE, rows.input_count, dtype=np.int32)
    # the last write wins: the smallest place is written last
    order = np.argsort(-place, kind="stable")
    signatures[cell[order]] = place[order]
    entries_of = signatures.reshape(len(chosen), SIGNATURE)
    for entry in (*range(SIGNATURE - 1, -1, -1), *range(SIGNATURE - 1, -1, -1)):
        empty = entries_of[:, entry] == rows.input_count
        entries_of[empty, entry] = entries_of[empty, (entry + 1) % SIGNATURE]
    return entries_of


def _classes(labels: Indices, members: Indices) -> list[Indices]:
    """Return the members of each label, ascending, by the first of them."""
    order = np.lexsort((members, labels))
    ends = np.flatnonzero(np.diff(labels[order])) + 1
    return sorted(np.split(members[order], ends), key=lambda some: int(some[0])) if len(members) else []


def _root(leaders: Indices, row: int) -> int:
    while leaders[row] != row:
        leaders[row] = leaders[leaders[row]]
        row = int(leaders[row])
    return row


def _join(leaders: Indices, left: int, right: int) -> None:
    first, second = sorted((_root(leaders, left), _root(leaders, right)))
    leaders[second] = first
